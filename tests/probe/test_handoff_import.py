"""``import cockpit`` in a script: costs nothing, needs nothing, and two lines do without it altogether."""

from __future__ import annotations

import subprocess
import sys
import venv

import pytest
from fake_engine import INJECT, ROOT, bare_env, probe_env

FALLBACK = """
try: from cockpit import session
except ImportError: session = lambda **_: type("NoCockpit", (), {"epochs": range, "restored": None, "step": 0})
"""
USE = """
class Thing:
    def state_dict(self): return {}
    def load_state_dict(self, state): 1 / 0
run = session(model=Thing())
print(list(run.epochs(3)), run.restored, run.step)
"""


def run(code, env, python=sys.executable):
    """Where no cockpit lies: with -c, the present folder is looked in first."""
    done = subprocess.run([python, "-c", code], env=env, cwd="/", capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """An interpreter whose environment has no cockpit, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    return str(folder / "bin" / "python")


def test_it_imports_nothing_of_weight():
    code = "import sys; before = set(sys.modules); from cockpit import session" + USE
    code += "new = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
    code += "print(sorted(new & {'torch', 'numpy', 'textual', 'socket', 'asyncio'}))"
    assert run(code, {**bare_env(), "PYTHONPATH": str(ROOT)}) == "[0, 1, 2] None 0\n[]\n"


def test_two_lines_do_without_it(without, tmp_path):
    assert run(FALLBACK + USE, bare_env(), without) == "[0, 1, 2] None 0\n"
    (tmp_path / "cockpit.py").write_text("")  # another project's module of that name
    assert run(FALLBACK + USE, {**bare_env(), "PYTHONPATH": str(tmp_path)}, without) == "[0, 1, 2] None 0\n"


def test_under_cockpit_it_is_there_where_it_is_not_installed(without, tmp_path):
    code = "import cockpit; print(cockpit.__file__); from cockpit import session" + USE
    told = run(code, probe_env(tmp_path / "run"), without)
    assert told == f"{ROOT / 'cockpit' / '__init__.py'}\n[0, 1, 2] None 0\n"


def test_another_of_that_name_stays_what_the_script_means(without, tmp_path):
    (tmp_path / "cockpit.py").write_text("WHOSE = 'theirs'\n")
    env = {**probe_env(tmp_path / "run"), "PYTHONPATH": f"{INJECT}:{tmp_path}"}
    assert run("import cockpit; print(cockpit.WHOSE)", env, without) == "theirs\n"


def test_a_life_without_a_probe_does_not_begin_again_at_epoch_0(tmp_path):
    """Another torch than the run began with, which the probe cannot watch: nothing could be restored."""
    life = tmp_path / "life-2"
    life.mkdir()
    env = {**bare_env(), "PYTHONPATH": str(ROOT), "COCKPIT_LIFE": str(life)}
    own = f"import json, os; json.dump({{'training': os.getpid()}}, open({str(life / 'pids.json')!r}, 'w'))\n"
    use = "from cockpit import session" + USE
    assert run(own + use, env) == "[0, 1, 2] None 0\n", "nothing was handed to it"
    (life / "go").write_text('{"handoff": "/somewhere/handoff/3"}')
    done = subprocess.run(
        [sys.executable, "-c", own + use], env=env, cwd="/", capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 75 and done.stdout == ""
    assert "nothing can be restored" in done.stderr and "Traceback" not in done.stderr
    other = f"import json; json.dump({{'training': 1}}, open({str(life / 'pids.json')!r}, 'w'))\n"
    assert run(other + use, env) == "[0, 1, 2] None 0\n", "what that process starts is another training"
