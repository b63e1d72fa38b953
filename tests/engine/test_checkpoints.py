"""The newest complete checkpoint: what is being written, was cut short or is foreign is passed over, with reasons."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
import zipfile
from pathlib import Path

import pytest

from cockpit.engine.checkpoints import Search, check_resume, resume_words, why_incomplete
from cockpit.model.errors import UsageError


class Clock:
    def __init__(self) -> None:
        self.now_s = time.time() + 100.0

    def __call__(self) -> float:
        return self.now_s


def torchs(path: Path, size: int = 3000) -> Path:
    """In the form that torch writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"p" * 50)
        archive.writestr("archive/data/0", b"t" * size)
        archive.writestr("archive/version", "3")
    return path


def tensors(path: Path, size: int = 100) -> Path:
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}, "__metadata__": {}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"x" * size)
    return path


def aged(path: Path, seconds: float) -> Path:
    at_s = time.time() - seconds
    os.utime(path, (at_s, at_s))
    return path


def made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def newest(folder: Path, pattern: str | None = "*.pt", quiet: bool = True) -> tuple[str | None, tuple[str, ...]]:
    found, passed = Search(folder, pattern, 0.0, Clock()).newest(quiet)
    return (found.path if found else None), passed


def test_the_newest_by_time_and_not_by_name(tmp_path: Path) -> None:
    aged(torchs(tmp_path / "9.pt"), 50)
    aged(torchs(tmp_path / "10.pt"), 20)
    aged(torchs(tmp_path / "zz.txt"), 1)
    assert newest(tmp_path) == ("10.pt", ())
    assert newest(tmp_path, "*.ckpt") == (None, ())


@pytest.mark.parametrize("keep", [0, 1, 40, 200, -1, -22, -60])
def test_one_that_was_cut_short_gives_way_to_the_one_before(tmp_path: Path, keep: int) -> None:
    aged(torchs(tmp_path / "1.pt"), 50)
    last = torchs(tmp_path / "2.pt")
    last.write_bytes(last.read_bytes()[:keep])
    path, passed = newest(tmp_path)
    if keep == 1:  # too little to know what it was going to be
        assert path == "2.pt"
    else:
        assert path == "1.pt" and passed[0].startswith("2.pt was not used: it "), passed


@pytest.mark.parametrize(
    "gone",
    ["optimizer.pt", "model-00002-of-00002.safetensors", "rng/state_1.pth"],
    ids=["a file", "a part", "a rank's"],
)
def test_a_folder_whose_writer_was_killed_between_two_files_gives_way_to_the_one_before(
    tmp_path: Path, gone: str
) -> None:
    for number, at_s in ((400, 50), (500, 20)):
        folder = tmp_path / f"checkpoint-{number}"
        (folder / "rng").mkdir(parents=True)
        for part in ("1", "2"):
            tensors(folder / f"model-0000{part}-of-00002.safetensors")
        for name in ("optimizer.pt", f"global_step{number}.pt", "rng/state_0.pth", "rng/state_1.pth"):
            torchs(folder / name)
        for file in folder.rglob("*.*"):
            aged(file, at_s)
    assert newest(tmp_path, "checkpoint-*") == ("checkpoint-500", ())
    (tmp_path / "checkpoint-500" / gone).unlink()
    path, (passed,) = newest(tmp_path, "checkpoint-*")
    assert path == "checkpoint-400"
    assert passed == f"checkpoint-500 was not used: it lacks {gone}, which checkpoint-400 has"


def test_folders_that_are_not_alike_lack_nothing(tmp_path: Path) -> None:
    """Names with more in them than numbers, and folders that are for something else."""
    for number, at_s in ((1, 60), (2, 50), (3, 40)):
        aged(torchs(made(tmp_path / f"epoch-{number}") / f"loss_{'abc'[number - 1]}e-05.pt"), at_s)
    path, (passed,) = newest(tmp_path, "epoch-*")
    assert path == "epoch-2" and passed.startswith("epoch-3"), "no further back than one"
    for name, at_s in (("metrics.pt", 30), ("model.pt", 30)):
        aged(torchs(made(tmp_path / "best") / name), at_s)
    aged(torchs(made(tmp_path / "last") / "model.pt"), 20)
    assert newest(tmp_path, "*") == ("last", ())


def test_by_another_name_it_is_still_the_same_checkpoint(tmp_path: Path) -> None:
    aged(torchs(tmp_path / "epoch_3.pt"), 20)
    (tmp_path / "latest.pt").symlink_to("epoch_3.pt")
    one, other = Search(tmp_path, "*.pt", 0.0, Clock()).all()
    assert one.path != other.path and one.key == other.key


@pytest.mark.parametrize("cut", [0, 4, 20, -1])
def test_safetensors_end_where_their_header_says(tmp_path: Path, cut: int) -> None:
    whole = tensors(tmp_path / "a.safetensors")
    assert why_incomplete(whole) is None
    whole.write_bytes(whole.read_bytes()[:cut])
    assert why_incomplete(whole) is not None


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "1.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap()))
        archive.writestr("archive/version", "3")
    (tmp_path / "old.pt").write_bytes(pickle.dumps(Trap()))
    assert newest(tmp_path)[0] is not None and not (tmp_path / "sprung").exists()


def test_while_it_trains_it_takes_two_looks_and_a_rest(tmp_path: Path) -> None:
    aged(torchs(tmp_path / "1.pt"), 50)
    clock = Clock()
    clock.now_s = time.time()
    search = Search(tmp_path, "*.pt", 0.0, clock)
    assert search.newest()[0] is None, "seen once: it may be growing"
    clock.now_s += 1.5
    first = search.newest()[0]
    assert first is not None and first.path == "1.pt"
    torchs(tmp_path / "2.pt")
    found, passed = search.newest()
    assert found is not None and found.path == "1.pt" and "being written" in passed[0]
    clock.now_s += 1.5
    torchs(tmp_path / "2.pt", 6000)  # it has grown meanwhile
    assert search.newest()[0] == first
    clock.now_s += 5.0
    last = search.newest()[0]
    assert last is not None and last.path == "2.pt" and last.key != first.key


def test_a_folder_is_as_good_as_its_worst_file(tmp_path: Path) -> None:
    torchs(tmp_path / "checkpoint-10" / "model.pt")
    (tmp_path / "checkpoint-10" / "state.json").write_text("{}")
    aged(tmp_path / "checkpoint-10" / "model.pt", 60)
    aged(tmp_path / "checkpoint-10" / "state.json", 60)
    last = torchs(tmp_path / "checkpoint-20" / "model.pt")
    last.write_bytes(last.read_bytes()[:500])
    assert newest(tmp_path, "checkpoint-*")[0] == "checkpoint-10"
    (tmp_path / "checkpoint-30.tmp").mkdir()
    (tmp_path / "checkpoint-40").mkdir()
    assert newest(tmp_path, "checkpoint-*")[0] == "checkpoint-10"


def test_without_a_pattern_only_what_was_written_since_the_run_began(tmp_path: Path) -> None:
    aged(torchs(tmp_path / "pretrained.pth"), 500)
    torchs(tmp_path / "out" / "run" / "last.ckpt")
    torchs(tmp_path / ".cache" / "hidden.pt")
    found, _ = Search(tmp_path, None, time.time() - 100.0, Clock()).newest(True)
    assert found is not None and found.path == "out/run/last.ckpt"
    assert Search(tmp_path, None, time.time() + 100.0, Clock()).newest(True)[0] is None


@pytest.mark.parametrize(
    ("text", "argv", "words"),
    [
        ("", ["python"], "needs what to put"),
        ("--resume 'x", ["python"], "cannot be"),
        ("--resume {ckpt}", ["python"], "knows {checkpoint}"),
        ("--resume {checkpoint}", ["/bin/sh", "-c", "x"], "behind sh -c"),
    ],
)
def test_words_that_could_not_work(text: str, argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_resume(text, argv)


def test_the_words_are_the_scripts() -> None:
    check_resume("--resume {checkpoint}", ["python", "train.py"])
    check_resume("--resume auto", ["bash", "run.sh"])
    assert resume_words("--resume={checkpoint} --strict", "a b.pt") == ["--resume=a b.pt", "--strict"]
