"""A real training that crashes, through the real command line: what follows by itself, and what a person is told."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from support.bare import command_of, run_bare
from support.outcome import REPO, TRAINERS
from support.under import ask, detached, run_under, status, wait_until

SCRIPT, FINAL_STEPS = TRAINERS / "crashes.py", 36
ENV = {"PYTHONPATH": str(REPO)}
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]
WAIT_S = 700


def losses(text: str) -> list[str]:
    return [line for line in text.splitlines() if " loss " in line or line.startswith("FINAL ")]


def in_the_end(text: str) -> list[str]:
    """What counts of each step is what was printed last: those of before the crash are made anew."""
    found = {line.partition(" loss ")[0]: line for line in losses(text)}
    return list(found.values())


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("raise", "RuntimeError: a bad batch"),
        ("oom", "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("kill", "killed (SIGKILL)"),
    ],
)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_it_goes_on_to_the_bit(state_dir: Path, tmp_path: Path, how: str, cause: str, workers: str) -> None:
    env = {**ENV, "CRASH": how, "WORKERS": workers}
    options = ["--on-crash", "restart", "--handoff-every", "1"]
    done = run_under(command_of(SCRIPT), state_dir, options, env, WAIT_S)
    folder = tmp_path / "bare"
    folder.mkdir()
    assert done.status == 0 and done.report is not None
    assert sorted(in_the_end(done.text)) == sorted(losses(run_bare(command_of(SCRIPT), folder, env, WAIT_S).text))
    (entry,) = done.report["ledger"]
    assert entry["origin"] == "crash" and entry["note"].startswith(f"{cause}, at step 20"), entry
    more = " or a few more" if how == "kill" else ""
    assert f"goes on from the hand-off after 3 epochs: 2 steps{more} are lost" in entry["note"], entry
    assert done.report["step"] == FINAL_STEPS and done.report["crash"] is None
    assert "crashed: " in done.talk and cause in done.talk and "try 1 of 3" in done.talk


def test_its_own_status_is_passed_on_and_nothing_is_tried(state_dir: Path) -> None:
    done = run_under(command_of(SCRIPT), state_dir, ["--on-crash", "restart"], {**ENV, "CRASH": "exit"}, WAIT_S)
    assert done.status == 7 and done.report is not None
    assert done.report["crash"] is None and done.report["ledger"] == []
    assert not (done.data_dir / "life-2").exists()


def test_offered_to_a_person_who_then_asks(state_dir: Path, tmp_path: Path) -> None:
    env = {**ENV, "CRASH": "kill"}
    done = run_under(command_of(SCRIPT), state_dir, ["--handoff-every", "2"], env, WAIT_S)
    assert done.status == 137 and done.report is not None
    told = done.report["crash"]
    assert (told["restart"], told["goes_on_from"], told["next_s"]) == (True, "the hand-off after 2 epochs", None)
    page = ask(state_dir, "status", "it").stdout
    assert "cockpit restart it goes on from the hand-off after 2 epochs" in page and "steps" in page, page
    again = ask(state_dir, "restart", "it", "--env", "MINE=7", "--env", f"PYTHONPATH={REPO}")
    assert again.returncode == 0 and "goes on from the hand-off after 2 epochs" in again.stdout, again
    wait_until(lambda: status(state_dir)["exit_status"] == 0, "the end", WAIT_S)
    text = (done.data_dir / "output.log").read_text()
    folder = tmp_path / "bare"
    folder.mkdir()
    assert sorted(in_the_end(text)) == sorted(losses(run_bare(command_of(SCRIPT), folder, env, WAIT_S).text))
    no = ask(state_dir, "restart", "it")
    assert no.returncode == 1 and "status 0" in no.stderr


RESUMES = TRAINERS / "resumes.py"


def test_a_script_that_resumes_by_itself(state_dir: Path, tmp_path: Path) -> None:
    env = {**ENV, "OUT": str(tmp_path), "CRASH_AT": "4.2"}
    options = ["--on-crash", "restart", "--resume-with", "--resume {checkpoint}", "--checkpoints", f"{tmp_path}/*.pt"]
    done = run_under(command_of(RESUMES), state_dir, options, env, WAIT_S)
    assert done.status == 0 and "resumed from epoch 4" in done.text, done.text
    assert done.report is not None
    (entry,) = done.report["ledger"]
    assert "epoch-4.pt" in entry["note"] and "is lost" in entry["note"], entry


def test_one_that_was_cut_short_is_passed_over(state_dir: Path, tmp_path: Path) -> None:
    env = {**ENV, "OUT": str(tmp_path), "CRASH_AT": "4.2", "CUT": "1"}
    options = ["--on-crash", "restart", "--resume-with", "--resume {checkpoint}", "--checkpoints", f"{tmp_path}/*.pt"]
    done = run_under(command_of(RESUMES), state_dir, options, env, WAIT_S)
    assert done.status == 0 and "resumed from epoch 3" in done.text, done.text


def test_another_environment_for_it(state_dir: Path, tmp_path: Path) -> None:
    env = {**ENV, "OUT": str(tmp_path), "EPOCHS": "4000", "PAUSE_S": "0.02"}
    options = ["--resume-with", "--resume {checkpoint}", "--checkpoints", f"{tmp_path}/*.pt"]
    with detached(command_of(RESUMES), state_dir, options, env) as data:
        wait_until(lambda: status(state_dir)["step"], "steps", WAIT_S)
        waited = ask(state_dir, "restart", "--wait", "--env", "MINE=7", timeout_s=WAIT_S)
        entry = json.loads(waited.stdout)
        assert entry["change"] == {"env MINE": [None, "7"]} and entry["reason"] is None, (entry, waited.stderr)
        assert "resumed from epoch" in (data / "output.log").read_text()
        bad = ask(state_dir, "restart", "--wait", "--env", "FAIL=1", timeout_s=WAIT_S)
        entry = json.loads(bad.stdout)
        assert bad.returncode == 1 and entry["outcome"] == "rolled_back", (entry, bad.stderr)
        os.kill(status(state_dir)["pid"], signal.SIGKILL)
        wait_until(lambda: status(state_dir)["state"] == "ended", "the end", 60)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_ranks_that_their_launcher_hands_the_words_to(state_dir: Path, tmp_path: Path, how: str) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    options = ["--on-crash", "restart", "--resume-with", "--resume {checkpoint}", "--checkpoints", f"{tmp_path}/*.pt"]
    env = {**ENV, "OUT": str(tmp_path), "HOW": how, "OMP_NUM_THREADS": "1"}
    done = run_under([*launch, str(TRAINERS / "ranks_resume.py")], state_dir, options, env, WAIT_S)
    assert done.status == 0 and done.report is not None, done.talk
    for rank in (0, 1):
        assert f"rank {rank} resumed from epoch 3" in done.text and f"rank {rank} is through" in done.text, done.text
    (entry,) = done.report["ledger"]
    assert "epoch-3.pt" in entry["note"] and ("rank one is unwell" in entry["note"]) == (how == "raise"), entry


SPLITS = """
import os, random, torch, cockpit
print("split", random.random(), float(torch.rand(())), flush=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
run = cockpit.session(model=model, optimizer=optimizer)
for epoch in run.epochs(4):
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).mean().backward()
        optimizer.step()
    if epoch == 2 and not run.restored:
        raise RuntimeError("once")
"""


@pytest.mark.parametrize("behind", [False, True])
def test_an_unseeded_split_is_the_same_again_or_said_to_be_another(
    state_dir: Path, tmp_path: Path, behind: bool
) -> None:
    script = tmp_path / "splits.py"
    script.write_text(SPLITS)
    command = [sys.executable, str(script)]
    if behind:
        command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    done = run_under(command, state_dir, ["--on-crash", "restart", "--handoff-every", "1"], ENV, WAIT_S)
    assert done.status == 0, done.text
    splits = [line for line in done.text.splitlines() if line.startswith("split ")]
    assert (len(splits), len(set(splits))) == (2, 2 if behind else 1), done.text
    assert done.text.count("was drawn anew") == behind, done.text
