"""Lines to paste: they are Python, a real DataLoader and torch take them, and what they cannot say is a sentence."""

from __future__ import annotations

import ast
import os
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cockpit.config.assign import Wishes
from cockpit.config.export import ENVIRONMENT, FORMS, LOADER_ARGUMENTS, TORCH_CALLS, export
from cockpit.model.errors import CockpitError, UsageError
from cockpit.model.knobs import KNOBS, SCRIPT, Value


def arguments_of(line: str) -> dict[str, Any]:
    """Keyword arguments of the one call in a line."""
    (call,) = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)]
    return {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}


def test_the_line_to_paste_names_the_scripts_own_call() -> None:
    found = export(Wishes({"pin_memory": True, "num_workers": 4}), "python", ("train.py:41",))
    assert found.lines == ("DataLoader(..., num_workers=4, pin_memory=True)  # train.py:41",)
    assert found.notes == ()


def test_each_knob_has_its_line_and_the_order_is_a_scripts() -> None:
    knobs: dict[str, Value] = {
        "num_workers": 2,
        "batch_size": 128,
        "autocast": "bf16",
        "compile": "max-autotune",
        "matmul": "high",
        "threads": 3,
    }
    assert export(Wishes(knobs), "python").lines == (
        "torch.set_num_threads(3)",
        'torch.set_float32_matmul_precision("high")',
        'model.compile(mode="max-autotune")  # in place, before the training: the names in its state_dict stay',
        "with torch.autocast(device_type=device.type, dtype=torch.bfloat16):",
        "    output = model(batch)  # the forward alone; loss and backward stay outside",
        "DataLoader(..., batch_size=128, num_workers=2)  # the training loader",
    )


def test_one_loaders_own_settings_come_on_top_of_everybodys() -> None:
    wanted = Wishes({"num_workers": 4, "pin_memory": True, "threads": 2}, {"train.py:52": {"num_workers": 1}})
    lines = export(wanted, "python").lines
    assert len(lines) == 3 and lines[2].endswith("# train.py:52")
    assert arguments_of(lines[1]) == {"num_workers": 4, "pin_memory": True}
    assert arguments_of(lines[2]) == {"num_workers": 1, "pin_memory": True}


def test_without_workers_what_needs_them_is_left_out_and_said() -> None:
    found = export(Wishes({"num_workers": 0, "prefetch_factor": 4, "persistent_workers": False}), "python")
    assert arguments_of(found.lines[0]) == {"num_workers": 0}
    assert found.notes == ("prefetch_factor 4 is left out: without workers it means nothing",)


def test_fp16_says_what_else_it_needs() -> None:
    assert any("GradScaler" in note for note in export(Wishes({"autocast": "fp16"}), "python").notes)
    assert export(Wishes({"autocast": "bf16"}), "python").notes == ()


def test_off_takes_something_away_and_calls_nothing() -> None:
    lines = export(Wishes({"autocast": "off", "compile": "off"}), "python").lines
    assert len(lines) == 2 and all(line.startswith("# ") for line in lines)


def test_variables_are_set_where_they_are_still_read() -> None:
    wanted = Wishes({"num_workers": 2}, environment={"OMP_NUM_THREADS": "4", "LD_PRELOAD": "/a b.so", "GONE": None})
    found = export(wanted, "python")
    names: dict[str, Any] = {}
    os.environ["GONE"] = "1"
    exec("\n".join(found.lines[:3]), names)
    try:
        assert os.environ["OMP_NUM_THREADS"] == "4" and "GONE" not in os.environ
    finally:
        del os.environ["OMP_NUM_THREADS"]
    assert found.lines[3].startswith("DataLoader(") and not any("LD_PRELOAD" in line for line in found.lines)
    assert found.notes == ("LD_PRELOAD: read before the script's first line: export it in the shell (--to env)",)
    shell = subprocess.run(
        ["bash", "-c", "\n".join([*export(wanted, "env").lines, "env"])],
        env={"GONE": "1", "PATH": os.environ["PATH"], "LD_PRELOAD": ""},
        capture_output=True,
        text=True,
    )
    assert (
        "OMP_NUM_THREADS=4\n" in shell.stdout and "LD_PRELOAD=/a b.so\n" in shell.stdout and "GONE" not in shell.stdout
    )


def test_a_knob_in_force_overrules_the_variable_that_means_the_same() -> None:
    found = export(Wishes({"threads": 2}, environment={"OMP_NUM_THREADS": "4", "MINE": "7"}), "env")
    assert found.lines == ("export MINE=7", "export OMP_NUM_THREADS=2", "export MKL_NUM_THREADS=2")
    assert found.notes == ("OMP_NUM_THREADS is as the knob in force has it, not as the environment",)


def test_environment_says_what_torch_reads_and_names_what_it_cannot() -> None:
    knobs: dict[str, Value] = {"num_workers": 4, "threads": 2, "matmul": "high", "compile": "off"}
    found = export(Wishes(knobs, {"train.py:52": {"in_order": False}}), "env")
    assert found.lines == (
        "export OMP_NUM_THREADS=2",
        "export MKL_NUM_THREADS=2",
        "export TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1",
        "export TORCH_COMPILE_DISABLE=1",
    )
    (note,) = found.notes
    assert "num_workers 4, train.py:52:in_order off:" in note and "--to python" in note


@pytest.mark.parametrize("knobs", [{"num_workers": 4}, {"matmul": "medium"}, {"compile": "default"}])
def test_a_setup_that_the_environment_cannot_say_is_refused(knobs: dict[str, Value]) -> None:
    with pytest.raises(CockpitError, match="no environment variable says") as caught:
        export(Wishes(knobs), "env")
    assert caught.value.code == 1


def test_nothing_to_say_is_one_sentence() -> None:
    with pytest.raises(CockpitError, match="nothing to export"):
        export(Wishes({}, {"train.py:52": {}}), "python")
    with pytest.raises(CockpitError, match="num_workers: as the script has it"):
        export(Wishes({"num_workers": SCRIPT}), "python")


@pytest.mark.parametrize("form", ["accelerate", "transformers", "lightning", "yaml", ""])
def test_other_forms_are_refused_by_name(form: str) -> None:
    with pytest.raises(UsageError, match="python, env") as caught:
        export(Wishes({"num_workers": 1}), form)
    assert ("later version" in str(caught.value)) == (form in ("accelerate", "transformers", "lightning"))


def test_every_knob_of_the_table_has_a_line_of_python() -> None:
    missing = [knob.name for knob in KNOBS if knob.name not in LOADER_ARGUMENTS and knob.name not in TORCH_CALLS]
    assert missing == [], "say in config/export.py how a script would set it"


values = {
    "int": lambda knob: some.integers(knob.low, min(knob.high, 3)),
    "switch": lambda knob: some.booleans(),
    "choice": lambda knob: some.sampled_from(knob.choices),
}
setups = some.fixed_dictionaries({}, optional={k.name: values[k.kind](k) | some.just(SCRIPT) for k in KNOBS})


@settings(deadline=None, max_examples=60)
@given(setups.filter(bool), some.sampled_from(sorted(FORMS)))
def test_nothing_is_lost_silently(knobs: dict[str, Value], form: str) -> None:
    try:
        found = export(Wishes(knobs), form)
    except CockpitError as error:
        found_text = str(error)
    else:
        found_text = "\n".join((*found.lines, *found.notes))
        if form == "python":
            ast.parse("\n".join(found.lines))
    for name, value in knobs.items():
        idle = value is False and name == "persistent_workers" and knobs.get("num_workers") == 0
        said = name in found_text or (form == "python" and name in TORCH_CALLS) or (name, value) in ENVIRONMENT
        assert said or idle or (name, None) in ENVIRONMENT


def test_a_real_loader_and_a_real_torch_take_the_lines() -> None:
    import torch
    from torch.utils.data import DataLoader

    knobs: dict[str, Value] = {
        "num_workers": 1,
        "prefetch_factor": 3,
        "pin_memory": False,
        "persistent_workers": True,
        "in_order": False,
        "batch_size": 5,
    }
    *calls, line = export(Wishes({**knobs, "threads": torch.get_num_threads(), "matmul": "highest"}), "python").lines
    loader = DataLoader(list(range(8)), **arguments_of(line))  # type: ignore[var-annotated]
    assert all(getattr(loader, name) == value for name, value in knobs.items())
    before = torch.get_float32_matmul_precision()
    try:
        for call in calls:
            exec(call, {"torch": torch})
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision(before)
    model = torch.nn.Linear(2, 2)
    for mode in ("default", "reduce-overhead"):
        (call,) = export(Wishes({"compile": mode}), "python").lines
        exec(call, {"model": model})
        assert set(model.state_dict()) == {"weight", "bias"}
    for word in ("bf16", "fp16"):
        text = "\n".join(export(Wishes({"autocast": word}), "python").lines)
        place: dict[str, Any] = {
            "torch": torch,
            "model": torch.nn.Linear(2, 2),
            "device": torch.device("cpu"),
            "batch": torch.ones(1, 2),
        }
        exec(text, place)
        assert str(place["output"].dtype) == {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[word]
