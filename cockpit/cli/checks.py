"""The judgements of ``doctor``: one small pure function a line, from the facts to a word and a sentence.

Each says what can be shown or done here, and where it cannot, why and what would help. No look at the machine here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cockpit.model.gpu import GpuFigures
from cockpit.tui.terminal import terminal_of, why_not

from .surroundings import Surroundings

FINE, LIMITED, MISSING = "fine", "limited", "missing"
"""``limited``: it works, and something is not shown or not to be had. ``missing``: nothing can be run without it."""

OURS = "training-cockpit"
OLDEST_PYTHON = (3, 9)
OLDEST_TORCH = (2, 14)
SHM_SMALL_BYTES = 256 * 2**20
FILES_FEW = 1024
DISK_SMALL_BYTES = 100 * 2**20
SMALLEST = (60, 16)


@dataclass(frozen=True)
class Check:
    """One line: ``found`` is what is there, ``says`` what follows from it (empty: nothing to be said)."""

    name: str
    state: str
    found: str | None
    says: str = ""


def judge(here: Surroundings) -> list[Check]:
    """Every check, in the order people read them."""
    return [Check(name, *check(here)) for name, check in CHECKS.items()]


Judged = tuple[str, str | None, str]


def _platform(here: Surroundings) -> Judged:
    found = f"{here.system} {here.release}"
    if here.system == "Linux" and "microsoft" in here.release.lower():
        return LIMITED, found, "WSL is unverified: nobody has tried it there yet"
    if here.system == "Linux":
        return FINE, found, ""
    if here.system == "Darwin":
        return LIMITED, found, "macOS is unverified: watching and the demo may work, CPU and memory are not shown"
    return MISSING, found, "cockpit runs on Linux"


def _python(here: Surroundings) -> Judged:
    return FINE, here.python, "this one runs cockpit itself"


def _torch(here: Surroundings) -> Judged:
    told = here.torch
    if told is None:
        return MISSING, None, here.torch_trouble or "not asked"
    if told["torch"] is None:
        said = f"{here.interpreter} has no torch ({told['trouble']})"
        return MISSING, None, f"{said}: activate the training's environment, or name its python after --"
    found = f"torch {told['torch']}, Python {told['python']}, {told['accelerator'] or 'no accelerator'}"
    if _version(told["python"]) < OLDEST_PYTHON:
        return MISSING, found, f"{here.interpreter} is older than Python 3.9: a training in it runs, but unseen"
    if _version(told["torch"]) < OLDEST_TORCH:
        return LIMITED, found, f"{here.interpreter}; tried with torch 2.14: what an older one lacks is refused"
    return FINE, found, here.interpreter


def _version(text: object) -> tuple[int, ...]:
    numbers = str(text).split("+")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdecimal())


def _cpus(here: Surroundings) -> Judged:
    limit = here.limit
    if limit is None:
        return LIMITED, None, "how many CPUs may be used cannot be told here"
    found = f"{limit.cpus:g} usable, limited by {LIMITS[limit.limited_by]}"
    if not here.run_queue:
        return LIMITED, found, "this kernel does not say how long a process waits for a CPU"
    return FINE, found, ""


LIMITS = {"machine": "the machine", "affinity": "CPU affinity", "cgroup": "a control group's quota"}


def _shared_memory(here: Surroundings) -> Judged:
    if here.shm_bytes is None:
        return LIMITED, None, "there is no /dev/shm: loader workers may not be able to hand batches over"
    total, free = here.shm_bytes
    found = f"{size_words(free)} free of {size_words(total)} in /dev/shm"
    if total <= SHM_SMALL_BYTES:
        return LIMITED, found, "loader workers hand batches over there: give the container more (--shm-size=8g)"
    if free < SHM_SMALL_BYTES:
        return LIMITED, found, "nearly full: loader workers hand batches over there"
    return FINE, found, ""


def _open_files(here: Surroundings) -> Judged:
    count = here.open_files
    if count is None:
        return LIMITED, None, "not known"
    found = "no limit" if count < 0 else f"at most {count}"
    few = 0 <= count < FILES_FEW
    return (LIMITED, found, "many loader workers need more: ulimit -n 4096") if few else (FINE, found, "")


def _gpu(here: Surroundings) -> Judged:
    reading = here.gpu
    if reading.trouble is not None:
        return LIMITED, None, reading.trouble
    if not reading.devices:
        return LIMITED, None, "the reader of the GPU did not answer" if reading.at_s is None else "no device"
    found = ", ".join(_device_words(device) for device in reading.devices)
    troubles = [f"{device.name or device.uuid}: {device.trouble}" for device in reading.devices if device.trouble]
    troubles += [
        f"{device.name or device.uuid} does not tell {name} ({reason})"
        for device in reading.devices
        for name, reason in (device.missing or {}).items()
    ]
    if not all(device.verified for device in reading.devices):
        troubles.append("its figures are (unverified): nobody has compared them with real hardware yet")
    return LIMITED if troubles else FINE, f"{found}; driver {reading.driver}", "; ".join(troubles)


def _device_words(device: GpuFigures) -> str:
    return f"{device.name or 'unnamed'} ({device.uuid})"


def _compiler(here: Surroundings) -> Judged:
    """The same rules as the probe's, which refuses the knob ``compile`` with these reasons."""
    told = here.torch or {}
    said = []
    if str(told.get("accelerator") or "").startswith("cuda"):
        found = here.c_compiler
        if found is None:
            said.append("torch.compile needs a C compiler (CC, gcc or clang) for Triton")
        if told.get("triton") is False:
            said.append(f"{here.interpreter} has no package triton, which torch.compile needs on a GPU")
    else:
        found = here.compiler
        if found is None:
            said.append(f"torch.compile on the CPU needs a C++ compiler ({here.environ.get('CXX') or 'g++'})")
        if told.get("headers") is False:
            said.append(f"{here.interpreter} has no Python.h, which torch.compile on the CPU needs: python3-dev")
    if here.cache_trouble:
        said.append(f"{here.cache_trouble}: name another one with TORCHINDUCTOR_CACHE_DIR")
    return (LIMITED, found, "; ".join(said)) if said else (FINE, found, "")


def _kernels(here: Surroundings) -> Judged:
    told = here.torch or {}
    if told.get("threads") is None:
        return LIMITED, None, "not known: torch did not say"
    where = "this GPU" if told.get("accelerator") else "this CPU"
    known = {True: "bf16 in hardware", False: "no bf16 in hardware", None: "bf16 not known"}
    found = f"{told['threads']} CPU threads, {known[told.get('bf16')]}"
    said = []
    if told.get("openmp") is False:
        said.append("this torch was built without OpenMP: the knob threads is refused")
    if told.get("bf16") is False:
        said.append(f"autocast to bf16 is emulated on {where}, and usually slower")
    if told.get("tf32") is False:
        said.append("no TF32 on this GPU: the knob matmul has no effect")
    return (LIMITED if said else FINE), found, "; ".join(said)


def _state_folder(here: Surroundings) -> Judged:
    found = str(here.runs)
    if here.runs_trouble:
        return MISSING, found, f"{here.runs_trouble}: name another one with --state-dir or XDG_STATE_HOME"
    if here.disk_free_bytes is not None and here.disk_free_bytes < DISK_SMALL_BYTES:
        return LIMITED, found, f"only {size_words(here.disk_free_bytes)} are free there, for output and journals"
    return FINE, found, ""


def _sockets(here: Surroundings) -> Judged:
    return (MISSING if here.sockets_trouble else FINE), str(here.sockets), here.sockets_trouble or ""


def _import_name(here: Surroundings) -> Judged:
    own = [name for name in here.owners if not _is_ours(name)]
    if own:
        others = " and ".join(own)
        return MISSING, others, f"it brings a package `cockpit` too, and overwrites ours: pip uninstall {others}"
    theirs = [name for name in (here.torch or {}).get("owners", ()) if not _is_ours(name)]
    if theirs:
        said = "in the training's Python, where it does no harm: the probe has a name of its own"
        return FINE, " and ".join(theirs), said
    return FINE, "no other package of this name", ""


def _is_ours(name: str) -> bool:
    return name.lower().replace("_", "-").replace(".", "-") == OURS


def _sitecustomize(here: Surroundings) -> Judged:
    file = (here.torch or {}).get("sitecustomize")
    return FINE, file or "none", "it still runs in a training: ours hands on to it" if file else ""


def _terminal(here: Surroundings) -> Judged:
    environ = here.environ
    terminal = terminal_of(environ, here.encoding)
    words = [environ.get("TERM") or "no TERM", here.encoding.lower()]
    words.append("true colour" if environ.get("COLORTERM") in ("truecolor", "24bit") else "colours as TERM says")
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        words.append("over SSH")
    if here.size:
        words.append(f"{here.size[0]}×{here.size[1]}")
    found = ", ".join(words)
    why = why_not(here.stdin_tty, here.stderr_tty, environ.get("TERM", ""))
    if why:
        return LIMITED, found, why
    said = []
    if terminal.glyphs == "ascii":
        said.append("charts are drawn in plain characters: this terminal or locale is not UTF-8")
    if here.size and (here.size[0] < SMALLEST[0] or here.size[1] < SMALLEST[1]):
        said.append(f"below {SMALLEST[0]}×{SMALLEST[1]} the screen is one line")
    if terminal.mono:
        said.append("NO_COLOR is set: nothing is said by colour alone")
    return (LIMITED if said else FINE), found, "; ".join(said)


def _tmux(here: Surroundings) -> Judged:
    inside = "inside a session" if here.environ.get("TMUX") else "not inside one"
    return FINE, f"{here.tmux}, {inside}" if here.tmux else "none", "a run outlives its terminal without it"


CHECKS: dict[str, Callable[[Surroundings], Judged]] = {
    "platform": _platform,
    "python": _python,
    "torch": _torch,
    "cpus": _cpus,
    "gpu": _gpu,
    "shared memory": _shared_memory,
    "open files": _open_files,
    "kernels": _kernels,
    "compiler": _compiler,
    "runs": _state_folder,
    "sockets": _sockets,
    "import name": _import_name,
    "sitecustomize": _sitecustomize,
    "terminal": _terminal,
    "tmux": _tmux,
}


def size_words(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def home_words(text: str, home: str | None) -> str:
    """Paths below the home folder with ``~``."""
    return text.replace(home + "/", "~/") if home and Path(home).is_absolute() and len(home) > 1 else text
