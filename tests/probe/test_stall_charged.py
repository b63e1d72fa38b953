"""What it costs to build and end workers is *start*, charged once: no step may wait less than nothing."""

from __future__ import annotations

from watched import Slow, SlowSGD, loader_of, train_step

BUILD_MS = 50.0


def test_what_the_first_batch_builds_is_not_taken_off_the_second_one_s_wait(it, monkeypatch):
    mechanism = it.probe.mechanism
    build = mechanism.build

    def slowly(*args, **kwargs):
        it.spend(BUILD_MS)
        return build(*args, **kwargs)

    monkeypatch.setattr(mechanism, "build", slowly)
    monkeypatch.setattr(mechanism, "clock", it.clock)
    model = Slow(it)
    optimizer = SlowSGD(it, model.parameters(), lr=0.1)
    loader = loader_of(it)
    it.ask("c1", now=True, num_workers=1)
    for _ in range(3):
        for batch in loader:
            train_step(model, optimizer, batch)
    steps = it.steps()
    assert len(steps) == 18
    assert all(step["wait"] >= 0 and step["start"] >= 0 for step in steps), steps
    built = [number for number, step in enumerate(steps) if step["start"] >= BUILD_MS]
    assert built == [1, 6, 12], "the swap, and each epoch's first step once"
