"""``cockpit.toml``: what is written reads back, what cannot be used is refused, nobody's file is lost."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cockpit.config.assign import Wishes, address, assignment, wishes
from cockpit.config.setup import Machine, Measured, SavedSetup, differences, read_setup, words_of
from cockpit.config.write import MARK, text_of, write_setup
from cockpit.model.errors import CockpitError, StartError, UsageError
from cockpit.model.knobs import KNOBS, SCRIPT

FULL = SavedSetup(
    Wishes(
        {"num_workers": 6, "pin_memory": True},
        {"train.py:52": {"prefetch_factor": 4}},
        {"OMP_NUM_THREADS": "4", "MALLOC_ARENA_MAX": None},
    ),
    Measured(147.0, 812.4, (790.1, 835.0)),
    Machine(8.0, "NVIDIA H100 80GB HBM3", "2.14.1"),
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_saved_setup_reads_back_as_it_was(tmp_path: Path) -> None:
    write_setup(tmp_path / "cockpit.toml", FULL)
    found = read_setup(tmp_path / "cockpit.toml")
    assert found == FULL and found.warnings == ()


def test_the_file_looks_as_it_is_documented() -> None:
    data = tomllib.loads(text_of(FULL))
    assert data["schema"] == 1
    assert data["setup"] == {"num_workers": 6, "pin_memory": True, "train.py:52:prefetch_factor": 4}
    assert data["environment"] == {"OMP_NUM_THREADS": "4", "MALLOC_ARENA_MAX": False}
    assert data["measured"] == {
        "baseline_samples_per_s": 147.0,
        "samples_per_s": 812.4,
        "interval": [790.1, 835.0],
    }
    assert data["machine"] == {"cpus": 8, "gpu": "NVIDIA H100 80GB HBM3", "torch": "2.14.1"}


def test_what_was_not_measured_is_left_out_and_never_zero() -> None:
    data = tomllib.loads(text_of(SavedSetup(Wishes({"num_workers": 2}))))
    assert data == {"schema": 1, "setup": {"num_workers": 2}}


values = {
    "int": lambda knob: some.integers(knob.low, knob.high),
    "switch": lambda knob: some.booleans(),
    "choice": lambda knob: some.sampled_from(knob.choices),
}
knob_values = some.fixed_dictionaries({}, optional={k.name: values[k.kind](k) | some.just(SCRIPT) for k in KNOBS})
of_loaders = some.fixed_dictionaries(
    {}, optional={k.name: values[k.kind](k) | some.just(SCRIPT) for k in KNOBS if k.room != "kernel"}
)
names = some.text(some.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(lambda s: s == s.strip())

texts = some.none() | some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
variables = some.dictionaries(some.from_regex(r"[A-BD-Z_][A-Z0-9_]{0,9}", fullmatch=True), texts, max_size=3)


@settings(deadline=None, max_examples=60)
@given(knob_values, some.dictionaries(names, of_loaders.filter(bool), max_size=2), names, variables)
def test_any_setup_survives_the_file(tmp_path_factory: pytest.TempPathFactory, knobs, loaders, gpu, env) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.getbasetemp() / "any.toml"
    saved = SavedSetup(Wishes(knobs, loaders, env), machine=Machine(gpu=gpu))
    write_setup(path, saved)
    assert read_setup(path) == saved


BROKEN = {
    "not toml": ("schema = = 1", "is broken"),
    "cut in the middle": ('schema = 1\n[setup]\nautocast = "b', "is broken"),
    "another tool's file": ("[tool.black]\nline-length = 88\n[setup]\nx = 1\n", "not a cockpit setup"),
    "a schema that is a word": ('schema = "1"\n[setup]\n', "not a cockpit setup"),
    "a schema that is a truth": ("schema = true\n[setup]\n", "not a cockpit setup"),
    "a setup that is a number": ("schema = 1\nsetup = 3\n", "not a cockpit setup"),
    "schema zero": ("schema = 0\n[setup]\n", "does not exist"),
    "newer": ("schema = 2\n[setup]\nnum_workers = 4\n", "newer cockpit"),
    "no setup": ("schema = 1\n[measured]\n", r"no \[setup\]"),
    "a wrong value": ("schema = 1\n[setup]\nnum_workers = -2\n", "num_workers cannot be -2"),
    "a wrong type": ("schema = 1\n[setup]\nnum_workers = 2.5\n", "num_workers cannot be 2.5"),
    "a wrong word": ('schema = 1\n[setup]\npin_memory = "perhaps"\n', "pin_memory cannot be perhaps"),
    "an environment that is a list": ("schema = 1\nenvironment = [1]\n", r"write \[environment\]"),
    "a variable of ours": ('schema = 1\n[environment]\nCOCKPIT_RUN = "x"\n', "COCKPIT_RUN is cockpit's own"),
    "our buffering": ('schema = 1\n[environment]\nPYTHONUNBUFFERED = ""\n', "PYTHONUNBUFFERED is cockpit's own"),
    "no name": ('schema = 1\n[environment]\n"A B" = "x"\n', "'A B' is no name"),
    "a variable that is on": ("schema = 1\n[environment]\nA = true\n", "A cannot be True"),
    "a variable that ends early": ('schema = 1\n[environment]\nA = "a\\u0000b"\n', "A cannot hold that value"),
    "a table as a value": ("schema = 1\n[setup]\nnum_workers = {a = 1}\n", "num_workers cannot be"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_used_is_refused_before_the_start(tmp_path: Path, name: str) -> None:
    text, words = BROKEN[name]
    path = write(tmp_path / "cockpit.toml", text)
    with pytest.raises(StartError, match=words) as caught:
        read_setup(path)
    assert caught.value.code == 125 and str(path) in str(caught.value)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    for name, words in (("none.toml", "no such file"), ("bytes.toml", "is broken"), (".", "is a directory")):
        with pytest.raises(StartError, match=words):
            read_setup(tmp_path / name)


def test_an_unknown_key_warns_and_names_the_nearest_and_the_rest_is_applied(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.toml",
        'schema = 1\n[setup]\nnum_worker = 4\npin_memory = "on"\n[surroundings]\nA = "1"\n',
    )
    found = read_setup(path)
    assert found.wishes == Wishes({"pin_memory": True})
    assert len(found.warnings) == 2
    assert "'num_worker'" in found.warnings[1] and "'num_workers'" in found.warnings[1]
    assert "[surroundings]" in found.warnings[0] and all("\n" not in line for line in found.warnings)


def test_a_file_may_hold_variables_alone_and_numbers_are_text(tmp_path: Path) -> None:
    found = read_setup(write(tmp_path / "c.toml", "schema = 1\n[environment]\nOMP_NUM_THREADS = 4\nGONE = false\n"))
    assert found.wishes == Wishes(environment={"OMP_NUM_THREADS": "4", "GONE": None})
    assert words_of(found.wishes) == ["OMP_NUM_THREADS=4", "GONE not set"]


def test_evidence_is_never_needed_to_load(tmp_path: Path) -> None:
    text = 'schema = 1\n[setup]\nnum_workers = 1\n[measured]\nsamples_per_s = "fast"\n'
    text += 'interval = [1]\n[machine]\ncpus = "all"\n'
    found = read_setup(write(tmp_path / "c.toml", text))
    assert (found.measured, found.machine) == (Measured(), Machine())


def test_a_file_that_cockpit_did_not_write_is_never_overwritten_without_asking(tmp_path: Path) -> None:
    path = write(tmp_path / "cockpit.toml", "mine = 1\n")
    with pytest.raises(CockpitError, match="--force") as caught:
        write_setup(path, FULL)
    assert caught.value.code == 1 and path.read_text() == "mine = 1\n"
    write_setup(path, FULL, force=True)
    assert path.read_text().startswith(MARK)
    write_setup(path, SavedSetup(Wishes({"num_workers": 1})))
    assert read_setup(path).wishes == Wishes({"num_workers": 1})


def test_writing_is_whole_or_not_at_all_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cockpit.toml"
    write_setup(path, FULL)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CockpitError, match="no space left"):
        write_setup(path, SavedSetup(Wishes({"num_workers": 1})))
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["cockpit.toml"]


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CockpitError, match=r"cannot write .*no such file"):
        write_setup(tmp_path / "none" / "c.toml", FULL)


def test_a_link_stays_a_link_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "link.toml"
    write_setup(real, FULL)
    real.chmod(0o600)
    link.symlink_to(real)
    write_setup(link, SavedSetup(Wishes({"num_workers": 3})))
    assert link.is_symlink() and read_setup(real).wishes == Wishes({"num_workers": 3})
    assert real.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("knobs", "there", "here", "words"),
    [
        (
            {"num_workers": 6},
            Machine(8.0),
            Machine(2.0),
            ["num_workers 6 is applied, but this job has only 2 CPUs"],
        ),
        ({"num_workers": 2}, Machine(8.0), Machine(2.0), ["measured with 8 CPUs, this job has 2"]),
        (
            {"pin_memory": True},
            Machine(gpu="H100"),
            Machine(gpu=""),
            ["no GPU is seen here; pin_memory on will be refused"],
        ),
        (
            {},
            Machine(torch="2.14.1"),
            Machine(torch="2.15.0"),
            ["measured with torch 2.14.1, this is 2.15.0"],
        ),
        ({"num_workers": 6}, Machine(8.0, "H100", "2.14.1"), Machine(), []),
        ({"num_workers": 6}, Machine(8.0, "H100", "2.14.1"), Machine(8.0, "H100", "2.14.1"), []),
        ({"num_workers": 2}, Machine(), Machine(2.0, "", "2.14.1"), []),
    ],
)
def test_another_machine_is_named_only_where_something_is_known(
    knobs: dict[str, bool | int | str], there: Machine, here: Machine, words: list[str]
) -> None:
    notes = differences(SavedSetup(Wishes(knobs), machine=there), here)
    assert len(notes) == len(words) and all(word in note for word, note in zip(words, notes, strict=True))


def test_words_typed_and_words_saved_are_the_same_words() -> None:
    typed = ["num_workers=4", "pin_memory=on", "train.py:52:in_order=off", "a:b:1#2:prefetch_factor=script"]
    assert words_of(wishes(typed)) == typed
    assert wishes(["num_workers=4", "num_workers=2"]).knobs == {"num_workers": 2}


@pytest.mark.parametrize("word", ["num_workers", "=4", "num_workers=", "num_worker=4", ":num_workers=4", "a:b=4", ""])
def test_a_wrong_assignment_is_one_sentence(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        assignment(word)
    assert "\n" not in str(caught.value)


def test_an_address_is_a_loader_and_a_knob() -> None:
    assert address("num_workers") == (None, "num_workers")
    assert address("train.py:52:num_workers") == ("train.py:52", "num_workers")


def test_a_setting_of_the_whole_training_is_asked_of_no_single_loader(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"threads is a setting of the whole training .* without train\.py:52"):
        assignment("train.py:52:threads=2")
    path = tmp_path / "it.toml"
    path.write_text('schema = 1\n[setup]\nnum_workers = 2\n"train.py:52:autocast" = "bf16"\n')
    read = read_setup(path)
    assert read.wishes == Wishes({"num_workers": 2}) and "'train.py:52:autocast' was not applied" in read.warnings[0]
