"""What the scripted training leaves on the disk: checkpoints of its own, and hand-offs, both without torch.

Used by ``scripted`` and ``scripted_session``. They have the outer form of the real ones, and hold two numbers.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
import zlib

from cockpit.model.names import ENV_RUN, HANDOFF_FOLDER
from cockpit.probe import lives
from cockpit.probe.handoff.folder import MANIFEST, SCHEMA, STATE

FOLDER = "ckpt"


def lives_so_far() -> int:
    """Processes of this run before the present one."""
    return sum(1 for _ in lives.folders(os.environ.get(ENV_RUN, "")))


def save(step: int, epoch: int) -> None:
    """A checkpoint, put in place in one step."""
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, f"{step}.pt")
    _write(path + ".tmp", {"step": step, "epoch": epoch})
    os.replace(path + ".tmp", path)


def load(path: str) -> tuple[int, int]:
    """Its step and epoch."""
    with zipfile.ZipFile(path) as archive:
        found = json.loads(archive.read("archive/data.pkl"))
    return int(found["step"]), int(found["epoch"])


def hand_off(epoch: int, epochs: int, step: int) -> None:
    """As the real one, of this run and whole."""
    folder = os.path.join(os.environ[ENV_RUN], HANDOFF_FOLDER)
    os.makedirs(folder, exist_ok=True)
    number = 1 + max((int(name) for name in os.listdir(folder) if name.isdigit()), default=0)
    new = os.path.join(folder, f"{number}.new")
    os.mkdir(new)
    text = _write(os.path.join(new, STATE), {"step": step, "epoch": epoch})
    manifest = {
        "schema": SCHEMA, "epoch": epoch, "epochs": epochs, "step": step, "created_s": time.time(),
        "bytes": os.stat(os.path.join(new, STATE)).st_size, "pickle_crc": zlib.crc32(text),
    }  # fmt: skip
    check = zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
    with open(os.path.join(new, MANIFEST), "w", encoding="utf-8") as file:
        json.dump({**manifest, "check": check}, file)
    os.rename(new, os.path.join(folder, str(number)))


def _write(path: str, content: dict[str, int]) -> bytes:
    text = json.dumps(content).encode()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", text)
        archive.writestr("archive/version", "3")
    return text
