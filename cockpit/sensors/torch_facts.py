# mypy: ignore-errors
"""Run as ``PYTHON torch_facts.py`` by ``doctor``, in the interpreter that a training would use: what torch is there.

Standard library, one JSON object on stdout. The only place of ours that imports torch outside a training, so it must
never be imported itself; its syntax is one that older interpreters parse too.
"""

import json
import os
import sys
import sysconfig


def main() -> None:
    """Say what this interpreter has; torch is imported last, since it is what may fail."""
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        # our neighbours in this folder have common names, and torch is to find its own
        del sys.path[0]
    facts = {"python": "%d.%d.%d" % sys.version_info[:3], "torch": None, "accelerator": None, "trouble": None}
    facts["sitecustomize"] = getattr(sys.modules.get("sitecustomize"), "__file__", None)
    facts["owners"] = owners("cockpit")
    try:
        import torch
    except ImportError as error:
        facts["trouble"] = "%s: %s" % (type(error).__name__, error)
    else:
        facts["torch"] = str(torch.__version__)
        accelerator = getattr(torch, "accelerator", None)
        if accelerator is not None and accelerator.is_available():
            facts["accelerator"] = str(accelerator.current_accelerator())
        elif accelerator is None and torch.cuda.is_available():
            facts["accelerator"] = "cuda"
        facts.update(kernels(torch, facts["accelerator"]))
    sys.stdout.write("\n" + json.dumps(facts) + "\n")


def kernels(torch, accelerator):
    """What the knobs of the kernels need: threads, bf16 in hardware, TF32, and what torch.compile builds with."""
    found = {"headers": os.path.isfile(os.path.join(sysconfig.get_paths()["include"], "Python.h"))}
    try:
        found["threads"] = torch.get_num_threads()
        found["openmp"] = "openmp" in torch.__config__.parallel_info().lower()
        if accelerator and accelerator.startswith("cuda"):
            import importlib.util

            found["triton"] = importlib.util.find_spec("triton") is not None
            found["bf16"] = found["tf32"] = torch.cuda.get_device_capability() >= (8, 0)
        else:
            asked = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
            known = [bool(ask()) for ask in asked if ask is not None]
            found["bf16"] = any(known) if known else None
    except (AttributeError, RuntimeError, AssertionError):
        pass  # an older torch, or a driver that refuses: what is missing is not known
    return found


def owners(package: str) -> "list[str]":
    """Names of the installed distributions that bring a package of this name."""
    try:
        from importlib.metadata import distributions
    except ImportError:
        return []
    found = set()
    for one in distributions():
        try:
            top = (one.read_text("top_level.txt") or "").split()
            if package in top or any(path.parts[0] == package for path in one.files or ()):
                found.add(str(one.metadata["Name"]))
        except (OSError, ValueError, IndexError):
            continue
    return sorted(found)


if __name__ == "__main__":
    main()
