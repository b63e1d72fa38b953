"""A script that calls ``cockpit.session`` and trains in another loop than over ``run.epochs(n)``: said meanwhile."""

from __future__ import annotations

import json
import threading

import pytest
from fake_engine import FakeEngine
from test_handoff_life import train

from cockpit.probe.handoff.telling import NOT_IN_LOOP

WAITS = "import time\n        while not os.path.exists('%s/on'): time.sleep(0.01)"


@pytest.mark.parametrize(
    ("loop", "written"),
    [("itertools.chain(range(1), run.epochs(2))", 2), pytest.param("range(3)", 0, marks=pytest.mark.long)],
)
def test_it_is_said_until_the_loop_has_begun(forks, tmp_path, loop, written):
    """Steps before the loop (a warm-up, a search for a rate) are no reason for ever; who asks meanwhile hears it."""
    (run_dir := tmp_path / "run").mkdir()
    (run_dir / "start.json").write_text(json.dumps({"handoff_every": 1}))
    engine, ran = FakeEngine(run_dir / "s"), []
    path = train(run_dir, loop, before="import itertools", end=WAITS % run_dir)
    thread = threading.Thread(target=lambda: ran.append(forks.run(path, run_dir=run_dir)))
    thread.start()
    try:
        engine.wait("session", 240, reason=NOT_IN_LOOP, epochs=None)
        engine.send(m="handoff", id="w", life=str(run_dir / "life-2"))
        assert engine.wait("handoff", id="w", state="failed")["reason"] == NOT_IN_LOOP
    finally:
        (run_dir / "on").touch()
        thread.join(240)
    assert ran[0].own[-1] == "done", ran[0].text
    assert len(engine.of("handoff", state="written")) == written
    assert bool(engine.of("session", reason=None, epochs=2)) == bool(written)
    engine.close()
