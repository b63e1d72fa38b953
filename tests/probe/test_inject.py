"""How the probe gets into a process, and that it is not noticed there: interpreters with and without torch."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_engine import INJECT, ROOT, FakeEngine, bare_env, finish, launch, probe_env, script

SOURCE = (INJECT / "sitecustomize.py").read_text()


def run(code: str, env: dict[str, str], *flags: str, cwd: Path | None = None) -> tuple[str, str, int]:
    done = subprocess.run(
        [sys.executable, *flags, "-c", code], env=env, cwd=cwd, capture_output=True, text=True, timeout=60
    )
    return done.stdout, done.stderr, done.returncode


def test_nothing_else_lies_in_the_injected_folder():
    assert [p.name for p in INJECT.iterdir() if p.name != "__pycache__"] == ["sitecustomize.py"]


def test_the_syntax_is_one_that_old_interpreters_parse():
    tree = ast.parse(SOURCE, feature_version=(3, 4))
    for node in ast.walk(tree):
        assert not isinstance(
            node, (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.YieldFrom, ast.Starred)
        )
        assert not isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.MatMult))
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            assert not node.returns and not arguments.kwonlyargs and not arguments.posonlyargs
            assert not any(a.annotation for a in arguments.args)
        if isinstance(node, ast.Raise):
            assert node.cause is None
        if isinstance(node, ast.ClassDef):
            assert not node.keywords
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print"
    assert SOURCE.isascii()


def test_an_interpreter_below_3_9_only_hands_on(tmp_path):
    """The same file, run by this interpreter as if it were an old one."""
    (tmp_path / "sitecustomize.py").write_text("MARK = 'theirs'\n")
    code = (
        f"import sys; sys.version_info = (2, 7, 18, 'final', 0); sys.path[:0] = [{str(INJECT)!r}, {str(tmp_path)!r}]\n"
        f"sys.modules.pop('sitecustomize', None); import sitecustomize\n"
        f"print(sitecustomize.MARK, len([f for f in sys.meta_path if 'Torch' in type(f).__name__]))"
    )
    assert run(code, {**bare_env(), "COCKPIT_RUN": str(tmp_path)}, "-S")[:2] == ("theirs 0\n", "")


def test_every_interpreter_at_hand_stays_silent(tmp_path):
    env, tried = probe_env(tmp_path), 0
    names = (
        sys.executable,
        *("python%s" % v for v in ("2", "2.7", "3.6", "3.8", "3.9", "3.10", "3.12", "3.13", "3.14")),
    )
    for path in {shutil.which(name) for name in names} - {None}:
        bare = subprocess.run([path, "-c", "print(1)"], env=bare_env(), capture_output=True, text=True, timeout=60)
        done = subprocess.run([path, "-c", "print(1)"], env=env, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr, done.returncode) == (bare.stdout, bare.stderr, bare.returncode)
        tried += bare.returncode == 0
    assert tried


@pytest.mark.parametrize("flags", [(), ("-I",), ("-E",), ("-S",), ("-s",), ("-O",), ("-W", "error"), ("-X", "dev")])
def test_a_process_without_torch_shows_nothing(tmp_path, flags):
    code = "import sys, json; print(sorted(m for m in sys.modules if 'cockpit' in m), len(sys.argv)); json.loads('1')"
    out, err, status = run(code, probe_env(tmp_path), *flags)
    assert (out, err, status) == ("[] 1\n", "", 0)


def test_nothing_is_installed_without_the_mark(tmp_path):
    env = probe_env(tmp_path)
    del env["COCKPIT_RUN"]
    assert "_TorchWaiter" not in run("import sys; print(sys.meta_path)", env)[0]
    assert "_TorchWaiter" in run("import sys; print(sys.meta_path)", probe_env(tmp_path))[0]


@pytest.mark.parametrize("content", ["MARK = __file__", "import no_such_thing", "raise ValueError('theirs')", "1/0"])
@pytest.mark.parametrize("shape", ["sitecustomize.py", "sitecustomize/__init__.py"])
def test_a_sitecustomize_that_is_hidden_runs_as_if_it_were_not(tmp_path, content, shape):
    theirs = tmp_path / "theirs" / shape
    theirs.parent.mkdir(parents=True)
    theirs.write_text(content + "\n")
    code = "import sys; m = sys.modules.get('sitecustomize')\nprint(*(getattr(m, n, 0) for n in ('MARK', '__file__')))"
    env = probe_env(tmp_path / "run")
    ours = run(code, {**env, "PYTHONPATH": f"{INJECT}:{tmp_path / 'theirs'}"})
    bare = run(code, {**bare_env(), "PYTHONPATH": str(tmp_path / "theirs")})
    assert ours[1:] == bare[1:]
    if content.startswith("MARK"):
        assert ours[0] == bare[0]


def test_a_sitecustomize_that_takes_names_away_takes_none_of_ours(tmp_path):
    """It may end with ``del os``, or call something by a name that stands in ours."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import os, sys\n_load = _ours = 1\ndel os, sys\nMARK = 5\n")
    lib = tmp_path / "lib"
    (lib / "torch").mkdir(parents=True)
    (lib / "torch" / "__init__.py").write_text("VERSION = 3\n")
    env = {**probe_env(tmp_path / "run"), "PYTHONPATH": f"{INJECT}:{tmp_path / 'theirs'}:{lib}"}
    out, err, status = run("import torch, sitecustomize; print(torch.VERSION, sitecustomize.MARK)", env)
    assert (out, err, status) == ("3 5\n", "", 0)


def test_two_injected_folders_do_not_chase_each_other(tmp_path):
    other = tmp_path / "inject"
    other.mkdir()
    (other / "sitecustomize.py").write_text(SOURCE)
    env = {**probe_env(tmp_path / "run"), "PYTHONPATH": f"{INJECT}:{other}:{INJECT}"}
    assert run("print(1)", env) == ("1\n", "", 0)


def fake_torch(folder: Path, content: str = "from torch import part\nVERSION = 1\n") -> Path:
    package = folder / "lib" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(content)
    (package / "part.py").write_text("")
    (package / "late.py").write_text("")
    return folder / "lib"


LOOK = """
import importlib.util, pickle, sys
before = importlib.util.find_spec("torch")
same = pickle.loads(pickle.dumps(before.loader)) == before.loader
spec_before = (type(before.loader).__name__, sorted(vars(before.loader)), before.origin, same)
import torch
spec = torch.__spec__
print(spec_before, type(torch.__loader__).__name__, sorted(vars(torch.__loader__)), torch.__loader__ is spec.loader,
      spec.name, spec.origin, spec.submodule_search_locations, torch.__file__, torch.VERSION, sorted(vars(torch)))
same = pickle.loads(pickle.dumps(spec.loader)) == spec.loader
print(importlib.util.find_spec("torch") is spec, importlib.reload(torch) is torch, same)
"""


def test_the_finder_is_transparent(tmp_path):
    lib = str(fake_torch(tmp_path))
    env = probe_env(tmp_path / "run")
    ours = run(LOOK, {**env, "PYTHONPATH": f"{INJECT}:{lib}"})
    bare = run(LOOK, {**bare_env(), "PYTHONPATH": lib})
    assert ours == bare and bare[2] == 0


@pytest.mark.parametrize("content", ["raise ImportError('libcudart')", "raise SystemExit(3)", "import torch.nothing"])
def test_a_torch_that_cannot_be_imported_fails_as_ever(tmp_path, content):
    lib = str(fake_torch(tmp_path, content + "\n"))
    code = "import sys\ntry:\n    import torch\nexcept ImportError as e:\n    print(repr(e), 'torch' in sys.modules)"
    ours = run(code, {**probe_env(tmp_path / "run"), "PYTHONPATH": f"{INJECT}:{lib}"})
    bare = run(code, {**bare_env(), "PYTHONPATH": lib})
    assert ours == bare


WATCH_LOADING = """
import sys
class Notice:
    def find_spec(self, name, path=None, target=None): return None
{how}
print("_training_cockpit" in sys.modules, any("Torch" in type(f).__name__ for f in sys.meta_path))
"""


@pytest.mark.parametrize(
    "how",
    [
        "import torch",
        "import torch.part",
        "from torch import part",
        "import importlib; importlib.import_module('torch.part')",
        "import threading; t = threading.Thread(target=lambda: __import__('torch')); t.start(); t.join()",
        "import importlib.util as u; s = u.find_spec('torch'); s.loader = u.LazyLoader(s.loader)\n"
        "m = u.module_from_spec(s); sys.modules['torch'] = m; s.loader.exec_module(m); m.VERSION; import torch.late",
    ],
)
def test_the_probe_is_loaded_once_torch_is_there_however_it_came(tmp_path, how):
    lib = str(fake_torch(tmp_path))
    env = {**probe_env(tmp_path / "run"), "PYTHONPATH": f"{INJECT}:{lib}"}
    assert run(WATCH_LOADING.format(how=how), env) == ("True False\n", "", 0)


def test_torch_that_is_there_already_is_patched_at_once(tmp_path):
    lib = str(fake_torch(tmp_path))
    code = f"import sys; sys.path[:0] = [{lib!r}]; import torch; sys.path.insert(0, {str(INJECT)!r}); " + (
        "sys.modules.pop('sitecustomize', None); import sitecustomize; print('_training_cockpit' in sys.modules)"
    )
    env = probe_env(tmp_path / "run")
    assert run(code, {**env, "PYTHONPATH": ""})[0] == "True\n"


def test_a_missing_or_broken_package_leaves_the_training_alone(tmp_path):
    lib = str(fake_torch(tmp_path))
    env = {**probe_env(tmp_path / "run"), "PYTHONPATH": f"{INJECT}:{lib}"}
    for folder in ("/nonexistent", str(tmp_path)):
        assert run("import torch; print(torch.VERSION)", {**env, "COCKPIT_PACKAGE": folder}) == ("1\n", "", 0)
    left = tmp_path / "run" / "probe_error"
    assert "/nonexistent" in left.read_text() and "Python 3" in left.read_text(), "the first one tells for all"
    assert left.stat().st_mode & 0o777 == 0o600
    del env["COCKPIT_PACKAGE"]
    assert run("import torch; print(torch.VERSION)", env) == ("1\n", "", 0)


def test_importing_the_probe_brings_nothing_heavy_along():
    code = "import sys; import cockpit.probe.install; print(sorted(set(sys.modules) & set(%r)))"
    heavy = ["torch", "textual", "rich", "numpy", "psutil", "pynvml", "asyncio", "multiprocessing.pool"]
    out, err, _ = run(code % heavy, {**bare_env(), "PYTHONPATH": str(ROOT)})
    assert (out, err) == ("[]\n", "")


def test_a_module_that_lies_beside_the_script_is_the_scripts(tmp_path):
    """Whatever it is called: the probe neither runs it nor puts Python's own in its place."""
    name = "resource"  # all that the probe takes from Python and torch does not: the whole list is in test_taking_over
    (tmp_path / f"{name}.py").write_text("print('of the script')")
    ours, theirs = "import cockpit.probe.install; print('ours')", f"import {name}; print({name}.__file__)"
    for first, second, said in ((ours, theirs, ["ours", "of the script"]), (theirs, ours, ["of the script", "ours"])):
        out, err, _ = run(f"{first}\n{second}", {**bare_env(), "PYTHONPATH": str(ROOT)}, cwd=tmp_path)
        assert ([line for line in out.splitlines() if "/" not in line], err) == (said, "")
        assert str(tmp_path / f"{name}.py") in out.splitlines()


def test_the_real_torch_gets_the_probe_under_its_private_name_only(tmp_path):
    path = script(tmp_path, """
        import sys
        import torch
        print("_training_cockpit.probe.install" in sys.modules, "cockpit" in sys.modules)
        print([p for p in sys.path if p.rstrip("/").endswith("cockpit")], torch.__spec__.loader is torch.__loader__)
        """)  # fmt: skip
    engine = FakeEngine(tmp_path / "run" / "s") if (tmp_path / "run").mkdir() is None else None
    out, err = finish(launch(path, probe_env(tmp_path / "run")))
    assert (out, err) == ("True False\n[] True\n", "")
    hello = engine.wait("hello")
    assert hello["trains"] is False and hello["off"] == {} and hello["argv"][-1].endswith("train.py")
    assert json.dumps(hello)
