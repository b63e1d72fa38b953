"""The rooms that are loaded inside somebody's training bring nothing with them and need no new Python."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cockpit

PACKAGE = Path(cockpit.__file__).parent
FILES = sorted([*(PACKAGE / "model").glob("*.py"), *(PACKAGE / "wire").glob("*.py")])


def test_importing_model_and_wire_brings_no_third_party_module() -> None:
    code = (
        "import sys; before = set(sys.modules); import cockpit.model.knobs, cockpit.model.events, cockpit.wire.codec; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'cockpit'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, timeout=60)
    assert out.stdout.strip() == "[]", out.stderr


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.name}" for path in FILES])
def test_files_loaded_by_the_probe_parse_as_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
