"""A made-up ``libnvidia-ml.so.1``, compiled from C, that the real pynvml loads in the reader's child."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("stub") / "nvml.c"


def compiled(folder: Path, *flags: str) -> Path:
    """The folder that holds the library."""
    library = folder / "libnvidia-ml.so.1"
    words = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags, "-o", str(library), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a present driver has it."""
    return compiled(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without the functions that came later."""
    return compiled(tmp_path_factory.mktemp("old-nvml"), "-DOLD_DRIVER")


Devices = Callable[..., None]


@pytest.fixture
def devices(stub_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Devices:
    """Call it with what the stub is to say from now on; it is in force for every process started later."""
    script = tmp_path / "devices"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(stub_library))
    monkeypatch.setenv("NVML_STUB", str(script))

    def say(*each: Mapping[str, object], **whole: object) -> None:
        lines = [f"{key}={value}" for key, value in {"driver": "580.1", "count": len(each), **whole}.items()]
        lines += [f"{key}.{at}={value}" for at, one in enumerate(each) for key, value in one.items()]
        new = script.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(script)

    return say
