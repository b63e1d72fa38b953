"""Hand-offs on the disk: written whole or not at all, and whatever was done to one since is noticed and said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
from fake_engine import ROOT

from cockpit.probe.handoff import folder as files
from cockpit.probe.handoff.contents import contents_of
from cockpit.probe.handoff.folder import DAMAGED, Owner, Refused, newest, numbers, write

OWNER = Owner("run", "/train.py", ("model", "optimizer"))


def state_of(value: float = 0.0, count: int = 1000) -> dict:
    half = torch.full((count,), value)
    model = {"w": half, "same": half, "view": half[: count // 2], "b": torch.arange(6).reshape(2, 3).t()}
    model["empty"], model["bf16"] = torch.empty(0), half.bfloat16()
    return {"things": {"model": model, "optimizer": {"lr": value, "words": ["a", (1, 2)]}}, "n": value}


def put(folder, value=0.0, owner=OWNER, **more):
    state = state_of(value)
    return write(torch, str(folder), owner, {"epoch": int(value), "step": 1}, state, contents_of(torch, state), **more)


def found(folder, owner=OWNER):
    whole, passed = newest(torch, str(folder), owner)
    return (None if whole is None else whole.state["n"]), passed


def test_what_is_written_is_read_and_two_are_kept(tmp_path):
    folder = tmp_path / "handoff"
    for value in (1.0, 2.0, 3.0):
        path, nbytes = put(folder, value)
        assert os.path.getsize(os.path.join(path, "state.pt")) == nbytes
    assert numbers(str(folder)) == [3, 2] and sorted(os.listdir(folder)) == ["2", "3"]
    assert found(folder) == (3.0, [])
    whole, _ = newest(torch, str(folder), OWNER)
    model = whole.state["things"]["model"]
    assert model["w"] is model["same"] and torch.equal(model["b"], state_of()["things"]["model"]["b"])
    assert not [name for _, _, names in os.walk(folder) for name in names if name not in ("state.pt", "manifest.json")]


def test_a_view_of_a_large_tensor_weighs_what_torch_writes_of_it():
    assert contents_of(torch, torch.zeros(1_000_000)[:3]).nbytes > 4_000_000
    twice = torch.zeros(1000)
    assert contents_of(torch, [twice, twice, twice.view(10, 100)]).nbytes < 2 * 4000


def test_whatever_has_no_plain_memory_is_listed_without_a_checksum():
    sparse = torch.eye(3).to_sparse()
    rows = contents_of(torch, {"s": sparse, "m": torch.empty(2, device="meta"), "c": torch.ones(2).conj()}).tensors
    assert [row[0] for row in rows] == [[3, 3], [2], [2]] and [row[2] is None for row in rows] == [True, True, False]


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1
    path.write_bytes(bytes(content))


def inside(path, ending):
    """Where a record of the archive lies in the file."""
    with zipfile.ZipFile(path) as archive:
        info = next(each for each in archive.infolist() if each.filename.endswith(ending))
    head = path.read_bytes()[info.header_offset : info.header_offset + 30]
    return info.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def older(path):
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "schema": 0}))


def edited(path):
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "epoch": 7}))


DAMAGES = {
    "a tensor": (lambda at: flip(at / "state.pt", inside(at / "state.pt", "data/0") + 64), "damaged"),
    "the pickle": (lambda at: flip(at / "state.pt", inside(at / "state.pt", "data.pkl") + 40), "damaged"),
    "cut off": (lambda at: cut(at / "state.pt"), "damaged"),
    "emptied": (lambda at: (at / "state.pt").write_bytes(b""), "damaged"),
    "no state": (lambda at: (at / "state.pt").unlink(), "damaged"),
    "no manifest": (lambda at: (at / "manifest.json").unlink(), "manifest.json cannot be read"),
    "half a manifest": (lambda at: cut(at / "manifest.json"), "manifest.json cannot be read"),
    "another manifest": (lambda at: edited(at / "manifest.json"), "is not what was written"),
    "an older schema": (
        lambda at: older(at / "manifest.json"),
        "another version of cockpit (schema 0, this one reads 1)",
    ),
    "a list": (lambda at: (at / "manifest.json").write_text("[]"), "another version"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_is_passed_over_with_its_reason(tmp_path, name):
    put(tmp_path, 1.0)
    put(tmp_path, 2.0)
    damage, words = DAMAGES[name]
    damage(tmp_path / "2")
    value, (sentence,) = found(tmp_path)
    assert value == 1.0 and sentence.startswith("hand-off 2 was not used: ") and words in sentence
    damage(tmp_path / "1")
    assert found(tmp_path)[0] is None and len(found(tmp_path)[1]) == 2


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (OWNER._replace(run="other"), "another run (run)"),
        (OWNER._replace(script="/other.py"), "another script (/train.py)"),
        (OWNER._replace(things=("model",)), "it holds model, optimizer, and the script now asks for model"),
    ],
)
def test_a_foreign_one_is_passed_over_with_its_reason(tmp_path, owner, words):
    put(tmp_path, 1.0)
    value, (sentence,) = found(tmp_path, owner)
    assert value is None and words in sentence
    assert found(tmp_path) == (1.0, []) and not (tmp_path / "1" / DAMAGED).exists(), "whose it is may use it"


def test_who_finds_that_one_is_damaged_leaves_word_of_it(tmp_path):
    """What a process would go on from is promised without reading all of it: not twice where that came to nothing."""
    put(tmp_path, 1.0)
    put(tmp_path, 2.0)
    path = tmp_path / "2" / "state.pt"
    intact = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        raw = max((archive.read(name) for name in archive.namelist() if "/data/" in name), key=len)
    flip(path, intact.index(raw) + len(raw) // 2)
    assert found(tmp_path)[0] == 1.0
    assert (tmp_path / "2" / DAMAGED).exists() and not (tmp_path / "1" / DAMAGED).exists()
    path.write_bytes(intact)
    assert found(tmp_path)[0] == 2.0, "it is looked at again all the same"


def test_every_single_byte_counts_or_changes_nothing(tmp_path):
    """A flipped byte anywhere is noticed, or lies where it says nothing (padding): a state is never another one."""
    state = {"n": 1.0, "w": torch.arange(4.0)}
    _, nbytes = write(torch, str(tmp_path), OWNER, {"epoch": 1, "step": 1}, state, contents_of(torch, state))
    intact = (tmp_path / "1" / "state.pt").read_bytes()
    for at in range(0, nbytes, max(1, nbytes // 150)):
        flip(tmp_path / "1" / "state.pt", at)
        whole, passed = newest(torch, str(tmp_path), OWNER)
        assert passed or (whole.state["n"] == 1.0 and torch.equal(whole.state["w"], state["w"])), at
        (tmp_path / "1" / "state.pt").write_bytes(intact)


def test_what_a_killed_write_left_is_no_hand_off_and_is_swept(tmp_path):
    put(tmp_path, 1.0)
    shutil.copytree(tmp_path / "1", tmp_path / "2.new")
    shutil.copytree(tmp_path / "1", tmp_path / "0.gone")
    assert found(tmp_path) == (1.0, [])
    put(tmp_path, 2.0)
    assert sorted(os.listdir(tmp_path)) == ["1", "2"]


def test_without_room_nothing_is_written(tmp_path):
    put(tmp_path, 1.0)
    with pytest.raises(Refused, match=r"it needs \d+ MB on the disk of .*, and 1 MB are free"):
        put(tmp_path, 2.0, free=lambda _: 1_000_000)
    assert os.listdir(tmp_path) == ["1"] and found(tmp_path) == (1.0, [])


def test_a_runs_folder_that_is_gone_does_not_come_back(tmp_path):
    with pytest.raises(Refused, match="cannot be written"):
        put(tmp_path / "gone" / "handoff")
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("step", ["save", "_load", "_check", "fsync", "sync_folder", "rename"])
def test_whatever_fails_while_it_is_written_leaves_the_one_before(tmp_path, monkeypatch, step):
    put(tmp_path, 1.0)

    def fails(*_, **__):
        raise OSError(28, "No space left on device")

    owner = {"save": torch, "fsync": files.os, "rename": files.os}.get(step, files)
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, fails)
        with pytest.raises(Refused, match=r"is full|No space left"):
            put(tmp_path, 2.0)
    assert found(tmp_path)[0] == 1.0
    put(tmp_path, 3.0)
    assert found(tmp_path) == (3.0, [])


def test_what_reads_back_as_something_else_is_not_kept(tmp_path, monkeypatch):
    put(tmp_path, 1.0)
    monkeypatch.setattr(files, "_load", lambda *_, **__: state_of(5.0))
    with pytest.raises(Refused, match="not what was written"):
        put(tmp_path, 2.0)
    assert os.listdir(tmp_path) == ["1"]


FULL = """
import gc, sys
sys.path[:0] = [{root!r}, {here!r}]
import torch
from test_handoff_files import found, put, state_of
from cockpit.probe.handoff.folder import Refused, free_bytes, write
from cockpit.probe.handoff.contents import contents_of
from test_handoff_files import OWNER
put({disk!r}, 1.0, free=lambda _: 1 << 40)
gc.disable()
for count in (4_000_000, 1_400_000, 1_398_000, 1_397_000, 1_396_000, 1_394_000, 1_390_000, 1_000_000):
    state, room = state_of(2.0, count), free_bytes({disk!r})
    try:
        write(torch, {disk!r}, OWNER, {{"epoch": 2, "step": 1}}, state, contents_of(torch, state), lambda _: 1 << 40)
        print("written", count)
    except Refused as error:
        print(error if free_bytes({disk!r}) == room else "less room than before")
print(*found({disk!r}))
"""


@pytest.mark.long
def test_a_disk_that_is_full_for_real(tmp_path):
    """A small file system of its own; the check before is told that there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = FULL.format(root=str(ROOT), here=os.path.dirname(__file__), disk=str(disk))
    (tmp_path / "full.py").write_text(words)
    shell = f"mount -t tmpfs -o size=8m tmpfs {disk} && exec {sys.executable} {tmp_path / 'full.py'}"
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", shell], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    full = f"the disk of {disk} is full"
    assert done.returncode == 0 and lines[:2] == [full, full], done.stdout + done.stderr
    assert len(lines) == 9 and all(line == full or line.startswith("written") for line in lines[:-1]), done.stdout
    assert lines[-1] == "2.0 []" and lines[7] in (full, "written 1000000")
