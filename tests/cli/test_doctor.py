"""``cockpit doctor``: each judgement on made-up surroundings, and the looks on real interpreters and folders."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.bare import clean_env
from support.outcome import REPO

from cockpit.cli.checks import CHECKS, FINE, LIMITED, MISSING, Check, home_words, judge, size_words
from cockpit.cli.doctor import line
from cockpit.cli.surroundings import Surroundings, ask_torch, look_at_cache, look_at_folder, look_at_sockets
from cockpit.model.gpu import GpuFigures
from cockpit.sensors import torch_facts
from cockpit.sensors.gpu.figures import GpuReading
from cockpit.sensors.limits import CpuLimit

TORCH = {
    "python": "3.12.1",
    "torch": "2.14.1+cu130",
    "accelerator": "cuda",
    "trouble": None,
    "sitecustomize": None,
    "owners": ["training-cockpit"],
    "threads": 8,
    "openmp": True,
    "headers": True,
    "triton": True,
    "bf16": True,
    "tf32": True,
}
ON_CPU = {**TORCH, "accelerator": None, "tf32": None}
GPU = GpuReading(1.0, (GpuFigures("GPU-1", "NVIDIA H100", verified=True),), None, "580.1")
WELL = Surroundings(
    python="3.11.7",
    system="Linux",
    release="6.8.0",
    interpreter="/venv/bin/python",
    torch=TORCH,
    torch_trouble=None,
    limit=CpuLimit(8.0, "machine", tuple(range(8))),
    run_queue=True,
    shm_bytes=(8 * 2**30, 7 * 2**30),
    open_files=65536,
    gpu=GPU,
    compiler="/usr/bin/g++",
    c_compiler="/usr/bin/gcc",
    cache=Path("/tmp"),
    cache_trouble=None,
    runs=Path("/home/a/.local/state/cockpit/runs"),
    runs_trouble=None,
    disk_free_bytes=10**12,
    sockets=Path("/tmp/cockpit-1000"),
    sockets_trouble=None,
    owners=("training-cockpit",),
    tmux="tmux 3.4",
    environ={"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "en_US.UTF-8"},
    encoding="utf-8",
    stdin_tty=True,
    stderr_tty=True,
    size=(120, 40),
)


def check(name: str, **changed: Any) -> Check:
    """One judgement, where the surroundings differ so from a machine on which all is well."""
    (found,) = [one for one in judge(replace(WELL, **changed)) if one.name == name]
    return found


def gpu(**changed: Any) -> GpuReading:
    return replace(GPU, devices=(replace(GPU.devices[0], **changed),))


def test_where_all_is_well_every_line_is_fine() -> None:
    assert {one.name: one.state for one in judge(WELL)} == dict.fromkeys(CHECKS, FINE)


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("platform", {"release": "5.15.0-microsoft-standard-WSL2"}, LIMITED, "WSL is unverified"),
    ("platform", {"system": "Darwin"}, LIMITED, "macOS is unverified"),
    ("platform", {"system": "Windows"}, MISSING, "runs on Linux"),
    ("torch", {"torch": None, "torch_trouble": "python did not answer within 60 s"}, MISSING, "did not answer"),
    ("torch", {"torch": {**TORCH, "torch": None, "trouble": "ModuleNotFoundError: x"}}, MISSING, "has no torch (Mod"),
    ("torch", {"torch": {**TORCH, "python": "3.8.10"}}, MISSING, "older than Python 3.9"),
    ("torch", {"torch": {**TORCH, "torch": "2.1.0"}}, LIMITED, "tried with torch 2.14"),
    ("cpus", {"limit": None}, LIMITED, "cannot be told"),
    ("cpus", {"run_queue": False}, LIMITED, "how long a process waits for a CPU"),
    ("shared memory", {"shm_bytes": None}, LIMITED, "no /dev/shm"),
    ("shared memory", {"shm_bytes": (64 * 2**20, 64 * 2**20)}, LIMITED, "--shm-size"),
    ("shared memory", {"shm_bytes": (8 * 2**30, 2**20)}, LIMITED, "nearly full"),
    ("open files", {"open_files": 256}, LIMITED, "ulimit -n"),
    ("gpu", {"gpu": GpuReading(1.0, trouble="no NVIDIA driver library")}, LIMITED, "no NVIDIA driver library"),
    ("gpu", {"gpu": GpuReading()}, LIMITED, "did not answer"),
    ("gpu", {"gpu": gpu(verified=False)}, LIMITED, "(unverified)"),
    ("gpu", {"gpu": gpu(trouble="the device needs a reset")}, LIMITED, "NVIDIA H100: the device needs a reset"),
    ("gpu", {"gpu": gpu(missing={"utilisation": "N/A (MIG)"})}, LIMITED, "does not tell utilisation (N/A (MIG))"),
    ("compiler", {"torch": ON_CPU, "compiler": None}, LIMITED, "C++ compiler (g++)"),
    ("compiler", {"torch": {**ON_CPU, "headers": False}}, LIMITED, "no Python.h"),
    ("compiler", {"c_compiler": None}, LIMITED, "for Triton"),
    ("compiler", {"torch": {**TORCH, "triton": False}}, LIMITED, "no package triton"),
    ("compiler", {"cache_trouble": "/tmp is mounted noexec"}, LIMITED, "TORCHINDUCTOR_CACHE_DIR"),
    ("kernels", {"torch": None}, LIMITED, "not known"),
    ("kernels", {"torch": {**TORCH, "openmp": False}}, LIMITED, "the knob threads is refused"),
    ("kernels", {"torch": {**ON_CPU, "bf16": False}}, LIMITED, "emulated on this CPU"),
    ("kernels", {"torch": {**TORCH, "tf32": False}}, LIMITED, "no TF32 on this GPU"),
    ("terminal", {"size": (50, 40)}, LIMITED, "below 60×16"),
    ("runs", {"runs_trouble": "/home cannot be written to"}, MISSING, "--state-dir"),
    ("runs", {"disk_free_bytes": 2**20}, LIMITED, "only 1 MiB are free"),
    ("sockets", {"sockets_trouble": "/tmp/cockpit-0 is open to other users"}, MISSING, "open to other users"),
    ("import name", {"owners": ("training_cockpit", "cockpit")}, MISSING, "pip uninstall cockpit"),
    ("terminal", {"stdin_tty": False}, LIMITED, "--headless"),
    ("terminal", {"environ": {}}, LIMITED, "'unknown'"),
    ("terminal", {"encoding": "latin-1"}, LIMITED, "plain characters"),
    ("terminal", {"environ": {**WELL.environ, "NO_COLOR": "1"}}, LIMITED, "NO_COLOR"),
]


@pytest.mark.parametrize(("name", "changed", "state", "words"), WRONG)
def test_what_is_amiss_is_said_with_what_follows(name: str, changed: dict[str, Any], state: str, words: str) -> None:
    found = check(name, **changed)
    assert (found.state, words in found.says) == (state, True), found
    assert "\n" not in line(found, None)


def test_what_is_worth_knowing_is_said_though_all_is_well() -> None:
    assert (
        check("cpus", limit=CpuLimit(1.5, "cgroup", (0, 1))).found == "1.5 usable, limited by a control group's quota"
    )
    assert "hands on to it" in check("sitecustomize", torch={**TORCH, "sitecustomize": "/etc/s.py"}).says
    theirs = check("import name", torch={**TORCH, "owners": ["cockpit"]})
    assert theirs.state == FINE and "does no harm" in theirs.says
    assert "over SSH" in str(check("terminal", environ={**WELL.environ, "SSH_TTY": "/dev/pts/0"}).found)
    assert "inside a session" in str(check("tmux", environ={**WELL.environ, "TMUX": "x"}).found)
    assert check("tmux", tmux=None).state == FINE
    assert "no accelerator" in str(check("torch", torch={**TORCH, "accelerator": None}).found)
    assert check("open files", open_files=-1).found == "no limit"
    assert check("compiler", torch=ON_CPU, c_compiler=None).state == FINE, "nothing of a GPU is asked of a CPU"
    assert "bf16 not known" in str(check("kernels", torch={**ON_CPU, "bf16": None}).found)
    assert "120×40" in str(check("terminal").found)


def test_words_for_sizes_and_homes() -> None:
    assert [size_words(count) for count in (0, 2048, 64 * 2**20, 8 * 2**30)] == ["0 B", "2 KiB", "64 MiB", "8.0 GiB"]
    assert home_words("/home/a/x and /home/ab", "/home/a") == "~/x and /home/ab"
    assert home_words("/srv/x", "/") == "/srv/x" and home_words("/x", None) == "/x"


def fake_python(folder: Path, shell: str) -> str:
    path = folder / "python"
    path.write_text("#!/bin/sh\n" + shell)
    path.chmod(0o755)
    return str(path)


def test_a_python_that_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    for shell, words in (
        ("sleep 30", "did not answer within 1 s"),
        ("echo hello; exit 0", "ended with status 0"),
        ("echo 'Illegal instruction' >&2; exit 132", "ended with status 132: Illegal instruction"),
        ("exit 3", "ended with status 3"),
    ):
        told, trouble = ask_torch(fake_python(tmp_path, shell), os.environ, timeout_s=1.0)
        assert told is None and words in str(trouble)
    told, trouble = ask_torch(str(tmp_path / "none"), os.environ)
    assert told is None and "no such file" in str(trouble)


def test_a_greeting_on_stdout_does_not_confuse_the_answer(tmp_path: Path) -> None:
    answer = json.dumps(TORCH)
    assert ask_torch(fake_python(tmp_path, f"echo 'hello from torch'; echo '{answer}'"), os.environ) == (TORCH, None)


def test_the_torch_that_is_asked_finds_its_own_neighbours_and_not_ours(tmp_path: Path) -> None:
    # beside the script that asks lies a file of ours called tree.py
    (tmp_path / "torch.py").write_text("from tree import accelerator, __version__\n")
    (tmp_path / "tree.py").write_text("__version__ = '9.9'\nclass accelerator:\n    is_available = lambda: False\n")
    told, trouble = ask_torch(sys.executable, clean_env({"PYTHONPATH": str(tmp_path)}))
    assert trouble is None and told is not None and (told["torch"], told["accelerator"]) == ("9.9", None)


@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_a_torch_that_cannot_be_imported_is_said(tmp_path: Path, error: str) -> None:
    (tmp_path / "torch.py").write_text(f"raise {error}('libcudart.so.99 is not there')\n")
    told, trouble = ask_torch(sys.executable, clean_env({"PYTHONPATH": str(tmp_path)}))
    judged = check("torch", torch=told, torch_trouble=trouble)
    assert judged.state == MISSING and "libcudart.so.99 is not there" in judged.says


def test_the_script_for_foreign_interpreters_is_parsed_by_old_ones() -> None:
    ast.parse(Path(torch_facts.__file__).read_text(), feature_version=(3, 7))


def test_another_distribution_with_our_import_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, record in (("cockpit", "cockpit/__init__.py,,\n"), ("other", "other/__init__.py,,\n")):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text(record)
    monkeypatch.syspath_prepend(tmp_path)
    assert "cockpit" in torch_facts.owners("cockpit") and "other" not in torch_facts.owners("cockpit")


def test_folders_are_looked_at_and_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look_at_folder(tmp_path / "a" / "b")[0] is None and not (tmp_path / "a").exists()
    (tmp_path / "file").write_text("")
    assert "is not a folder" in str(look_at_folder(tmp_path / "file" / "runs")[0])
    assert look_at_sockets(tmp_path / "none") is None and not (tmp_path / "none").exists()
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert "open to other users" in str(look_at_sockets(tmp_path / "open"))
    assert "not a link" in str(look_at_sockets(tmp_path / "link"))
    assert look_at_cache(tmp_path / "none") is None and "is not a folder" in str(look_at_cache(tmp_path / "file"))
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((1, 1, 1, 1, 1, 1, 1, 1, os.ST_NOEXEC, 255)))
    assert "mounted noexec" in str(look_at_cache(tmp_path))


def doctor(state_dir: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cockpit.cli.main", "doctor", "--state-dir", str(state_dir), *words],
        cwd=REPO,
        env=clean_env({"PYTHONPATH": str(REPO), **(env or {})}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_this_machine_can_run_a_training(state_dir: Path) -> None:
    done = doctor(state_dir, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], done.stderr) == (0, True, "")
    states = {one["name"]: one["state"] for one in told["checks"]}
    assert list(states) == list(CHECKS) and MISSING not in states.values()
    assert states["terminal"] == LIMITED, "the test has no terminal"
    found = {one["name"]: one["found"] for one in told["checks"]}
    assert "CPU threads" in found["kernels"], "the real torch says what its kernels can do"
    assert not (state_dir / "runs").exists()


def test_where_something_needed_is_missing_it_is_named_and_the_status_is_1(state_dir: Path) -> None:
    (state_dir / "bin").mkdir()
    fake_python(state_dir / "bin", "exit 1")
    done = doctor(state_dir / "bin" / "python", env={"VIRTUAL_ENV": str(state_dir)})
    assert done.returncode == 1 and done.stderr == ""
    assert done.stdout.splitlines()[-1] == "cannot run: torch, runs"
    assert doctor(state_dir, "more").returncode == 2


def test_the_looks_themselves_import_no_torch() -> None:
    code = "import sys, cockpit.cli.doctor; print([n for n in ('torch', 'textual', 'pynvml') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, env=clean_env({"PYTHONPATH": str(REPO)}), capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr
