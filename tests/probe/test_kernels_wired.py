"""Kernel knobs through the whole probe: asked as the engine asks, landed on a real training, told as it is."""

from __future__ import annotations

import gc
import json
import traceback

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from watched import Rows, Slow, loader_of, train_step

from cockpit.model.knobs import NO_EFFECT
from cockpit.model.names import ENV_RUN, START_FILE
from cockpit.probe.kernels import compiling
from cockpit.probe.start import told


@pytest.fixture(autouse=True)
def torch_as_before(monkeypatch):
    kind, threads, precision = (
        torch.amp.autocast_mode.autocast, torch.get_num_threads(), torch.get_float32_matmul_precision(),
    )  # fmt: skip
    monkeypatch.setattr(kind, "__enter__", kind.__enter__)
    yield
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)


class Training:
    def __init__(self, it, model: nn.Module | None = None) -> None:
        self.it, self.model, self.loader = it, model or Slow(it), loader_of(it)
        self.dtypes: list[torch.dtype] = []
        self.model.inner.register_forward_hook(lambda m, i, out: self.dtypes.append(out.dtype))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def epoch(self) -> None:
        for batch in self.loader:
            train_step(self.model, self.optimizer, batch)
            self.it.spend(1100)
            self.it.beat()


def knobs(it) -> dict[str, dict]:
    return {knob["name"]: knob for knob in it.of("loaders")[-1]["kernels"]}


def changes(it) -> list[tuple[str, str]]:
    """Its moves; what was said of it beforehand (of the hook that these tests look with) is none."""
    return [(m["id"], m["state"]) for m in it.of("change") if m["state"] != "queued"]


def test_rows_of_the_whole_training_are_told_beside_its_loaders(it):
    training = Training(it)
    training.epoch()
    rows = knobs(it)
    assert set(rows) == {"threads", "matmul", "autocast", "compile"}
    assert not set(rows) & {knob["name"] for knob in it.of("loaders")[-1]["loaders"][0]["knobs"]}
    assert rows["threads"]["in_force"] == rows["threads"]["script"] == torch.get_num_threads()
    assert (rows["autocast"]["in_force"], rows["compile"]["in_force"]) == ("off", "off")
    assert not training.it.probe.kernels.places.wanted


def test_autocast_at_the_boundary_and_back(it):
    training = Training(it)
    training.epoch()
    it.ask("c1", autocast="bf16")
    training.epoch()
    assert set(training.dtypes[:6]) == {torch.float32} and set(training.dtypes[6:]) == {torch.bfloat16}
    assert changes(it) == [("c1", "applying"), ("c1", "settling")]
    assert it.of("change")[-1]["before"] == {"autocast": "script"}
    assert it.of("change")[-1]["in_force"] == {"autocast": "bf16"} and knobs(it)["autocast"]["in_force"] == "bf16"
    it.ask("c2", autocast="script")
    training.epoch()
    assert set(training.dtypes[12:]) == {torch.float32}
    assert knobs(it)["autocast"]["in_force"] == "off"
    assert it.recorder.setting.change == "c2"


@pytest.mark.parametrize("cares", [False, True])
@pytest.mark.parametrize("more", [{}, {"threads": 1}], ids=["alone", "with another"])
def test_what_changes_nothing_says_so_once_it_is_in_force(it, monkeypatch, cares, more):
    monkeypatch.setattr("cockpit.probe.kernels.setters.changes_products", lambda torch: cares)
    training = Training(it)
    training.epoch()
    for name, value in (("c1", "high"), ("c2", "script")):
        it.ask(name, matmul=value, **more)
        training.epoch()
        told = it.of("change", id=name)[-1]
        assert told["state"] == "settling"
        assert (told["reason"] or "").startswith(NO_EFFECT) is (not cares and not more)


def test_now_lands_in_the_middle_of_the_epoch(it):
    training = Training(it)
    training.epoch()
    for n, batch in enumerate(training.loader):
        if n == 2:
            it.ask("c1", now=True, autocast="bf16", threads=3)
        train_step(training.model, training.optimizer, batch)
    assert training.dtypes[6:] == [torch.float32] * 3 + [torch.bfloat16] * 3
    assert torch.get_num_threads() == 3 and changes(it)[-1] == ("c1", "settling")


def test_one_change_of_loader_and_kernel_knobs(it):
    training = Training(it)
    training.epoch()
    it.ask("c1", num_workers=1, autocast="bf16")
    training.epoch()
    assert changes(it) == [("c1", "applying"), ("c1", "settling")]
    assert it.of("change")[-1]["in_force"] == {"num_workers": 1, "autocast": "bf16"}
    it.ask("c2", num_workers=0, autocast="fp16")
    training.epoch()
    assert changes(it)[-1] == ("c2", "refused") and "GradScaler" in it.of("change")[-1]["reason"]
    (loader,) = it.of("loaders")[-1]["loaders"]
    assert {knob["name"]: knob["in_force"] for knob in loader["knobs"]}["num_workers"] == 1, "refused whole"


def test_of_no_single_loader(it):
    training = Training(it)
    training.epoch()
    it.ask("c1", loader=next(iter(it.roles())), threads=2)
    assert changes(it) == [("c1", "refused")]


def test_from_the_start_and_from_the_schedule(it, tmp_path):
    folder = it.probe._environ[ENV_RUN]
    start = {"set": {"threads": 3}, "at": [{"id": "at0", "when": "epoch", "n": 1, "knobs": {"autocast": "bf16"}}]}
    with open(folder + "/" + START_FILE, "w") as file:
        json.dump(start, file)
    it.probe.asks.start(told(folder))
    training = Training(it)
    training.epoch()
    assert torch.get_num_threads() == 3 and set(training.dtypes) == {torch.float32}
    training.epoch()
    assert set(training.dtypes[6:]) == {torch.bfloat16} and changes(it)[-1] == ("at0", "settling")


def test_blocks_never_span_a_change(it):
    training = Training(it)
    training.loader = loader_of(it, 400)
    training.epoch()
    it.ask("c1", autocast="bf16")
    training.epoch()
    settings = [block["change"] for block in it.of("block")]
    assert settings == sorted(settings, key=lambda change: change is not None) and set(settings) == {None, "c1"}


def test_compile_time_belongs_to_no_step_and_no_phase(it):
    watch = it.probe.kernels.watch

    class Told:
        class callback_trigger:
            _name_ = "DYNAMO"

        compile_id = "0/0"

    class Compiling(Slow):
        def forward(self, x):
            watch._begun(Told)
            it.spend(5000)
            it.beat()
            self.seen = it.recorder.doing
            watch._ended(Told)
            assert it.recorder.doing == "forward"
            return super().forward(x)

    training = Training(it, Compiling(it))
    for batch in DataLoader(Rows(it, 24), batch_size=4):
        train_step(training.model, training.optimizer, batch)
    assert training.model.seen == "compile"
    assert watch.total_ns >= 6 * 5000 * 10**6
    told = [tick for tick in it.of("tick") if tick["doing"] == "compile"]
    assert len(told) >= 4 and all(5000 * 10**6 <= tick["doing_ns"] < 5100 * 10**6 for tick in told)
    assert all(tick["wall_ns"] < 100 * 10**6 for tick in told), "nor of the live numbers'"
    ticks = it.of("tick")
    total = {name: sum(tick[name] for tick in ticks) / 10**6 for name in ("wall_ns", "forward_ns", "steps")}
    assert total["wall_ns"] < 6 * 30, "compiling is no step's time"
    assert total["forward_ns"] == pytest.approx(60, abs=1), "and no phase's"
    assert (ticks[-1]["compile_ns"], ticks[-1]["recompiles"]) == (watch.total_ns, 0), "but told beside them"
    (epoch,) = it.of("epoch")
    assert epoch["wall_ns"] < 6 * 30 * 10**6 and epoch["whole"], "nor any epoch's"


@pytest.mark.parametrize("when", ["boundary", "now", "fetching"])
def test_loading_the_compiler_is_no_waiting_for_a_batch(it, monkeypatch, when):
    """It is loaded where the change lands, inside a loader's own call; or a transform of the script compiles."""
    watch = it.probe.kernels.watch

    def load(*_):
        began = watch.begin()
        it.spend(9000)
        watch.end(began)

    monkeypatch.setattr(compiling, "load", load)
    monkeypatch.setattr(torch, "compile", lambda call, mode=None: call)
    monkeypatch.setattr(compiling, "missing_compiler", lambda device: None)
    training = Training(it)
    for epoch in range(3):
        for n, batch in enumerate(training.loader):
            if (epoch, n, when) in ((1, 2, "now"), (1, 5, "boundary")):
                it.ask("c1", now=when == "now", compile="default")
            train_step(training.model, training.optimizer, batch)
            if (epoch, n, when) == (1, 2, "fetching"):
                monkeypatch.setattr(Rows, "__getitem__", lambda self, index: (load(), torch.ones(2))[1])
    assert watch.total_ns >= 9000 * 10**6
    steps = it.steps()
    assert max(step["wait"] for step in steps) < 100 and max(step["start"] for step in steps) < 100
    assert all(step["wait"] + step["start"] <= step["lived"] for step in steps)
    assert max(step["lived"] for step in steps[6:]) < 100
    told = it.of("loaders")[-1]["loaders"][0]
    assert told["epoch_start_ms"] < 100


@pytest.mark.parametrize(("dtype", "word"), [(torch.bfloat16, "bfloat16 already"), (torch.float64, "in float64")])
def test_a_row_says_beforehand_where_a_knob_has_no_effect(it, dtype, word):
    class Low(Slow):
        def forward(self, x):
            return super().forward(x.to(dtype)).float()

    training = Training(it, Low(it).to(dtype))
    training.epoch()
    row = knobs(it)["autocast"]
    assert not row["can"] and row["reason"].startswith("no effect") and word in row["reason"]
    assert row["in_force"] == "off" and knobs(it)["compile"]["can"]
    assert "not numerically neutral" in knobs(it)["compile"]["note"]


def test_an_epoch_knows_whether_it_ran_under_one_setting(it):
    training = Training(it)
    training.epoch()
    for n, batch in enumerate(training.loader):
        if n == 2:
            it.ask("c1", now=True, threads=3)
        train_step(training.model, training.optimizer, batch)
    training.epoch()
    it.ask("c2", threads=2)
    training.epoch()
    assert [epoch["whole"] for epoch in it.of("epoch")] == [True, False, True, True]


def test_what_was_compiled_before_anybody_watched_is_not_known(it, monkeypatch):
    watch = it.probe.kernels.watch
    assert watch.found().total_ns in (0, None)
    counters = {"stats": {"unique_graphs": 3}}
    monkeypatch.setattr(torch._dynamo.utils, "counters", counters)
    fresh = type(watch)(it.probe.clock, it.recorder.ident)
    assert fresh.found() == (None, 3, None), "nobody has watched at all"
    assert fresh.attach() and fresh.found() == (None, 3, None)
    fresh.restart()
    counters["stats"]["unique_graphs"] = 4
    assert fresh.found() == (0, 1, 0), "a child's own"


def test_without_a_loader_it_lands_at_a_step(it):
    model = Slow(it)
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.01), []
    model.inner.register_forward_hook(lambda m, i, out: found.append(out.dtype))
    for n in range(8):
        if n == 4:
            it.ask("c1", autocast="bf16")
        train_step(model, optimizer, torch.ones(4, 2))
    assert found[-1] == torch.bfloat16 and changes(it)[-1] == ("c1", "settling")
    assert it.of("loaders")[-1]["loaders"] == [] and knobs(it)["autocast"]["in_force"] == "bf16", "it has its rows too"


def test_the_next_folds_model_gets_what_is_in_force(it):
    """Not at ever longer distances, as what merely joins: what was found is gone, or not called any more."""
    first = Training(it)
    for _ in range(4):
        first.epoch()
    it.ask("c1", autocast="bf16")
    first.epoch()
    assert first.dtypes[-1] == torch.bfloat16
    first = None
    gc.collect()
    quick = Training(it)
    for batch in quick.loader:  # over before anybody would have looked
        train_step(quick.model, quick.optimizer, batch)
    assert quick.dtypes == [torch.float32] * 2 + [torch.bfloat16] * 4
    assert knobs(it)["autocast"]["in_force"] == "bf16"
    ensemble, fold, quick = [], quick, None
    for stays in (False, True):  # of the former model nothing is left; then it lives on
        ensemble += [fold] if stays else []
        fold = None
        gc.collect()
        fold = Training(it)
        fold.epoch()
        assert len(it.probe.kernels.roots) == 1 + len(ensemble)
        assert set(fold.dtypes[3:]) == {torch.bfloat16}
        row = knobs(it)["autocast"]
        assert (row["script"], row["in_force"], row["can"]) == ("off", "bf16", True)
    it.ask("c2", autocast="script")
    fold.epoch()
    assert fold.dtypes[-1] == torch.float32 and changes(it)[-1] == ("c2", "settling")


def test_gradients_that_are_differentiated_again_rule_compile_out(it):
    training = Training(it)
    training.epoch()
    assert torch.autograd.grad(training.model(torch.ones(4, 2)).sum(), training.model.inner.weight)
    it.beat()
    assert knobs(it)["compile"]["can"], "once is nothing special"
    for batch in training.loader:
        train_step(training.model, training.optimizer, batch)
        out = training.model(batch.requires_grad_())
        (slope,) = torch.autograd.grad(out.sum(), batch, create_graph=True)
        slope.square().mean().backward()
    it.ask("c1", compile="default")
    training.epoch()
    assert changes(it) == [("c1", "refused")] and "create_graph" in it.of("change")[-1]["reason"]
    assert not knobs(it)["compile"]["can"] and "create_graph" in knobs(it)["compile"]["reason"]


def test_the_scripts_own_error_looks_as_it_does_without_a_knob(it):
    class Touchy(Slow):
        def forward(self, x):
            if x.shape[0] == 3:
                raise LookupError("theirs")
            return super().forward(x)

    def shown():
        with pytest.raises(LookupError) as caught:
            training.model(torch.ones(3, 2))
        assert caught.value.__context__ is None and caught.value.__cause__ is None
        return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]

    training = Training(it, Touchy(it))
    training.epoch()
    plain = shown()
    it.ask("c1", autocast="bf16")
    training.epoch()
    assert shown() == plain and plain[-1] == "forward"
    assert changes(it)[-1] == ("c1", "settling"), "it fails either way"


def test_several_ranks_are_refused(it):
    training = Training(it)
    it.probe._environ["WORLD_SIZE"] = "2"
    training.epoch()
    it.ask("c1", autocast="bf16")
    training.epoch()
    assert changes(it) == [("c1", "refused")] and "several ranks" in it.of("change")[-1]["reason"]
    assert set(training.dtypes) == {torch.float32}


def test_an_epochs_end_and_a_change_are_told_in_the_order_in_which_they_were(it):
    training = Training(it)
    training.epoch()
    it.of("tick")
    it.heard.clear()
    it.ask("c1", threads=2)
    for batch in training.loader:  # a whole epoch between two beats
        train_step(training.model, training.optimizer, batch)
    it.beat()
    told = [(m["m"], m.get("state")) for m in it.heard if m["m"] in ("epoch", "change")]
    assert told == [("change", "applying"), ("change", "settling"), ("epoch", None)]


def test_what_was_compiled_before_a_change_is_told_before_it(it):
    training, watch = Training(it), it.probe.kernels.watch
    training.epoch()
    begun = watch.begin()
    it.spend(700)
    watch.end(begun)
    before = watch.found()
    it.ask("c1", threads=2)
    training.epoch()
    applying, settling = it.of("change")
    assert (applying["compile_ns"], applying["graphs"]) == before[:2] and before.total_ns >= 700 * 10**6
    assert "compile_ns" not in settling
