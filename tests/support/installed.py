"""The wheel as a user gets it, in a fresh environment: built, installed without its dependencies, and run from there.

The dependencies (torch is gigabytes) are seen through one .pth file that names the test interpreter's own folder.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from .bare import clean_env
from .outcome import REPO


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout."""
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), "."]
    done = subprocess.run(words, cwd=REPO, env=clean_env(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("training_cockpit-*.whl")
    return wheel


def install_wheel(wheel: Path, folder: Path) -> Path:
    """A fresh environment with nothing but this wheel of its own; the folder of its programs."""
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    words = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(programs / "python"),
        "install",
        "-q",
        "--no-deps",
        str(wheel),
    ]
    done = subprocess.run(words, env=clean_env(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "seen_from_outside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return programs
