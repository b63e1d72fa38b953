"""The demo's training: its pictures, that it learns, that workers help it on any machine, that the wheel has it."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image
from support.bare import clean_env
from support.under import COCKPIT

REPO = Path(__file__).parents[2]
DEMO = REPO / "demo"
MAKE = (
    "import sys; from pathlib import Path; from pictures import make_pictures; "
    "print(make_pictures(Path(sys.argv[1]), int(sys.argv[2])))"
)


def run_python(*args: str | Path, timeout_s: float = 120, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=DEMO,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def make(folder: Path, per_class: int, **environ: str) -> int:
    done = run_python("-c", MAKE, folder, str(per_class), **environ)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All the pictures, made once for this file."""
    folder = tmp_path_factory.mktemp("pictures")
    assert make(folder, 96) == 768
    return folder


def test_pictures_are_the_same_bytes_whoever_makes_them(tmp_path: Path) -> None:
    hashes = []
    for folder, seed in ((tmp_path / "a", "1"), (tmp_path / "b", "2")):
        assert make(folder, 3, PYTHONHASHSEED=seed) == 24
        files = sorted(folder.rglob("*.jpg"))
        hashes.append([(file.name, file.parent.name, hash_of(file)) for file in files])
    assert hashes[0] == hashes[1]
    assert len({content for _, _, content in hashes[0]}) == 24, "no two pictures are alike"


def hash_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_an_interrupted_first_use_leaves_only_whole_files_and_goes_on(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", MAKE, tmp_path, "40"], cwd=DEMO, stdout=subprocess.DEVNULL) as maker:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.rglob("*.jpg"))) < 20 and time.monotonic() < deadline:
            time.sleep(0.005)
        maker.send_signal(signal.SIGKILL)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.jpg")}
    assert 20 <= len(files) < 320, "the kill came in the middle"
    for file in files:
        with Image.open(file) as picture:
            picture.load()  # raises on a file cut short
    emptied = min(files)
    emptied.write_bytes(b"")  # what a crash of the whole machine can leave behind
    assert make(tmp_path, 40) == 320 - len(files) + 1
    assert len(list(tmp_path.rglob("*.jpg"))) == 320
    untouched = {file: file.stat().st_mtime_ns for file in files if file != emptied}
    assert untouched == {file: at for file, at in files.items() if file != emptied}
    assert emptied.stat().st_size > 0
    assert make(tmp_path, 40) == 0


def test_the_training_learns_and_says_what_is_simulated(data: Path) -> None:
    done = run_python("train.py", "--data", data, "--epochs", "4", "--store-ms", "0.1")
    assert done.returncode == 0, done.stderr
    assert "simulated file store: 0.1 ms per read" in done.stdout
    losses = [float(found) for found in re.findall(r"epoch +\d+ +loss (\d+\.\d+) +accuracy +\d+%", done.stdout)]
    assert len(losses) == 4
    assert losses[3] < 0.85 * losses[0]
    assert losses == sorted(losses, reverse=True), "falls in each of the first epochs"


def test_the_folder_is_found_by_xdg_or_home(tmp_path: Path) -> None:
    ask = "from pictures import default_folder; print(default_folder())"
    for cache, expected in (
        (str(tmp_path), tmp_path / "cockpit-demo"),
        ("", tmp_path / "home/.cache/cockpit-demo"),
        ("not/absolute", tmp_path / "home/.cache/cockpit-demo"),
    ):
        done = run_python("-c", ask, XDG_CACHE_HOME=cache, HOME=str(tmp_path / "home"))
        assert done.stdout.strip() == str(expected)


def test_a_folder_that_cannot_be_made_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run_python("train.py", "--data", tmp_path / "file" / "folder")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot make the demo's pictures" in done.stderr and "--data" in done.stderr


def test_without_pillow_it_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['PIL'] = None; import runpy; runpy.run_path('train.py', run_name='__main__')"
    done = run_python("-c", "import sys; sys.path.insert(0, '.'); " + code)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'training-cockpit[demo]'" in done.stderr


def test_the_demo_never_imports_the_cockpit() -> None:
    sources = sorted(DEMO.rglob("*.py"))
    assert DEMO / "train.py" in sources
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "cockpit"], f"{source} imports the cockpit"


@contextmanager
def busy_core(core: int | None) -> Iterator[None]:
    """Another process that burns one core: the given one, or whichever the kernel gives it."""
    bind = f"import os; os.sched_setaffinity(0, {{{core}}})\n" if core is not None else ""
    burn = bind + "import time\nt = time.monotonic()\nwhile time.monotonic() - t < 300: pass"
    with subprocess.Popen([sys.executable, "-c", burn]) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.mark.long
@pytest.mark.parametrize(("workers", "one_core"), [(2, False), (4, True)])
def test_workers_lift_the_throughput_though_a_core_is_busy(data: Path, workers: int, one_core: bool) -> None:
    """A/B/A blocks of 0 and N workers; also the hardest case, everything on one core that is busy already."""
    core = min(os.sched_getaffinity(0)) if one_core else None
    script = REPO / "tests/demo/measure_workers.py"
    bound = ["taskset", "-c", str(core)] if one_core else []
    tries = []
    with busy_core(core):
        for _ in range(3):
            done = subprocess.run(
                [*bound, sys.executable, script, data, "--workers", str(workers)],
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            tries.append(json.loads(done.stdout))
            if statistics.median(tries[-1]["ratios"]) > 1.2:
                return
    pytest.fail(f"{workers} workers gave no more than 1.2x in three tries, load average {os.getloadavg()}: {tries}")


def test_the_command_starts_it_and_its_loader_changes_while_it_runs(data: Path, state_dir: Path) -> None:
    words = ["demo", "--headless", "--json", "--state-dir", str(state_dir), "--at", "step:3", "num_workers=2"]
    done = subprocess.run(
        [*COCKPIT, *words, "--", "--epochs", "1", "--store-ms", "1", "--data", str(data)],
        cwd=REPO,
        env=clean_env(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (loader,) = report["loaders"]
    assert (loader["role"], loader["samples_by_epoch"], report["step"]) == ("train", [768], 48)
    (change,) = report["ledger"]
    assert change["change"] == {"num_workers": [0, 2]}
    assert change["state"] in ("settling", "kept")


def test_the_wheel_contains_the_demo_and_it_runs_from_there(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("cockpit/demo/")]
        archive.extractall(tmp_path / "site", members=names)
    assert {"cockpit/demo/train.py", "cockpit/demo/pictures.py"} <= set(names)
    help_text = run_python(tmp_path / "site/cockpit/demo/train.py", "--help")
    assert help_text.returncode == 0 and "--store-ms" in help_text.stdout
