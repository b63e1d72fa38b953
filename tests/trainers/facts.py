"""Prints what a script can know about the process that it runs in, as one JSON object; trains two steps."""

import atexit
import gc
import json
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings

import torch
from torch.utils.data import DataLoader, Dataset


class Item(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3,), float(index))


def trace():
    try:
        raise ValueError("shown")
    except ValueError:
        return traceback.format_exc()


def stack():
    frame, names = sys._getframe(), []
    while frame is not None:
        names.append((os.path.basename(frame.f_code.co_filename), frame.f_code.co_name))
        frame = frame.f_back
    return names


def facts(method):
    main = sys.modules["__main__"]
    before = set(os.listdir("/proc/self/fd"))
    loader = DataLoader(Item(4), batch_size=2, num_workers=2, multiprocessing_context=method)
    return {
        "argv": sys.argv,
        "orig_argv": getattr(sys, "orig_argv", None),
        "path": [p for p in sys.path if not p.endswith("inject")],
        "name": __name__,
        "file": __file__,
        "package": __package__,
        "spec": getattr(__spec__, "name", None),
        "cached": __cached__ if "__cached__" in globals() else "none",
        "loader": type(__loader__).__name__,
        "main_is_me": main.__dict__ is globals(),
        "builtins": type(__builtins__).__name__,
        "doc": __doc__,
        "annotations": "__annotations__" in globals(),
        "globals": sorted(vars(main)),
        "flags": str(sys.flags),
        "warnings": [str(f) for f in warnings.filters],
        "xoptions": sys._xoptions,
        "signals": {
            n.name: str(signal.getsignal(n)).split(" at ")[0]
            for n in signal.valid_signals()
            if isinstance(n, signal.Signals)
        },
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "cwd": os.getcwd(),
        "umask": oct(os.umask(0o22)),
        "nice": os.nice(0),
        "stdin": os.readlink("/proc/self/fd/0"),
        "same_output": os.fstat(1).st_ino == os.fstat(2).st_ino,
        "buffering": [sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding, sys.stdout.errors],
        "fds": sorted(
            f
            for f in before
            if os.path.exists("/proc/self/fd/" + f) and "socket" not in os.readlink("/proc/self/fd/" + f)
        ),
        "group": os.getpgid(0) == os.getpid(),
        "threads": [t.name for t in threading.enumerate()],
        "tasks": len(os.listdir("/proc/self/task")),
        "gc": [gc.isenabled(), gc.get_threshold(), gc.isenabled()],
        "hash": hash("cockpit") if os.environ.get("PYTHONHASHSEED") else None,
        "env": {k: v for k, v in os.environ.items() if not k.startswith("COCKPIT") and k != "PYTHONPATH"},
        "stack": stack(),
        "trace": trace(),
        "torch_threads": torch.get_num_threads(),
        "pickle": pickle.loads(pickle.dumps(Item(7))).count,
        "pickled_as": Item.__module__,
        "batches": [batch.tolist() for batch in loader],
        "modules": sorted(m for m in sys.modules if "cockpit" not in m),
    }


if __name__ == "__main__":
    atexit.register(print, "AT EXIT", flush=True)
    print("FACTS " + json.dumps(facts(os.environ.get("METHOD", "fork"))), flush=True)
    if os.environ.get("FAIL"):
        raise RuntimeError("told to fail")
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(Item(8), batch_size=2):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    sys.exit(int(os.environ.get("STATUS", "0")))
