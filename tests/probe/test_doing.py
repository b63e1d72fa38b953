"""What the training is doing right now, where that is neither loader nor step: it saves, or something ends."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from probe.fake_engine import FakeEngine, finish, launch, probe_env, script

TRAINING = """
    import atexit, threading, time
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Slow:
        def __reduce__(self):
            time.sleep(0.7)
            return Slow, ()

    def late_to_end(_):
        threading.Thread(target=time.sleep, args=(0.4,)).start()

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        data = TensorDataset(torch.ones(8, 4))
        for (x,) in DataLoader(data, batch_size=2, num_workers=1, worker_init_fn=late_to_end):
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.save({"model": model.state_dict(), "slow": Slow()}, "it.pt")
    print("through")
"""


def test_saving_and_the_ends_of_workers_and_process_are_told(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path / "s")
    process = launch(script(tmp_path, TRAINING), probe_env(tmp_path, {}))
    out, err = finish(process)
    assert (out, err, process.returncode) == ("through\n", "", 0)
    ticks = engine.of("tick")
    saving = [tick for tick in ticks if tick["doing"] == "save"]
    assert saving and max(tick["doing_ns"] for tick in saving) > 0.2e9
    assert all(tick["wait_ns"] < 0.5e9 and tick["forward_ns"] < 0.5e9 for tick in ticks)  # it is in no phase
    assert any(tick["doing"] == "loader_end" and tick["doing_ns"] > 0.1e9 for tick in ticks)
    assert ticks[-1]["doing"] == "shutdown"
    engine.close()


def test_save_stays_what_the_script_knows(it: Any) -> None:
    """Found under both names, pickled by reference, its errors and warnings the script's own."""
    assert torch.save is torch.serialization.save and pickle.loads(pickle.dumps(torch.save)) is torch.save
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save({"a": torch.ones(2)}, io.BytesIO())
    try:
        torch.save(lambda: None, io.BytesIO())
    except (AttributeError, pickle.PicklingError) as error:
        frames = []
        traceback = error.__traceback__
        while traceback is not None:
            frames.append(traceback.tb_frame.f_code.co_filename)
            traceback = traceback.tb_next
        assert not any("probe" in frame for frame in frames[1:])
    else:
        raise AssertionError("a lambda cannot be saved")
