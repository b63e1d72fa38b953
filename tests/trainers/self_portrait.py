"""Trains a little and prints what it can see of its own process: filters, hooks, flags, handlers, threads, folders."""

import atexit
import gc
import logging
import os
import signal
import sys
import threading
import warnings

print("before torch", [name for name in sys.modules if "cockpit" in name], threading.active_count())
print("path", [entry for entry in sys.path if "cockpit" not in entry], sys.flags, sys.argv[1:])

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, get_worker_info  # noqa: E402

from toy import BATCH, Numbers, finish, mlp, seed  # noqa: E402


def portrait(when):
    print(when, "filters", len(warnings.filters), "hooks", sys.excepthook.__name__, sys.displayhook.__name__)
    print(
        when,
        "threading",
        threading.excepthook.__name__,
        sys.gettrace(),
        sys.getprofile(),
        sys.unraisablehook.__name__,
    )
    print(when, "threads", [thread.name for thread in threading.enumerate() if thread.name.startswith("Main")])
    print(
        when,
        "signals",
        [(int(s), str(signal.getsignal(s))) for s in signal.valid_signals() if int(s) < 32 and s != signal.SIGCHLD],
    )
    print(
        when,
        "gc",
        gc.isenabled(),
        gc.get_threshold(),
        gc.get_freeze_count(),
        "switch",
        sys.getswitchinterval(),
    )
    print(when, "recursion", sys.getrecursionlimit(), "logging", logging.root.level, logging.root.handlers)
    print(
        when,
        "spec",
        torch.__spec__.name,
        type(torch.__loader__).__name__,
        type(torch.__spec__.loader).__name__,
    )
    print(
        when,
        "mode",
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
    )
    print(
        when,
        "threads of torch",
        torch.get_num_threads(),
        torch.get_num_interop_threads(),
        torch.get_default_dtype(),
    )
    print(
        when,
        "module hooks",
        len(nn.modules.module._global_forward_hooks),
        len(nn.modules.module._global_forward_pre_hooks),
    )
    mask = os.umask(0o022)
    os.umask(mask)
    print(when, "umask", oct(mask), "folder", os.getcwd(), "nice", os.nice(0))
    print(
        when,
        "stdin",
        sys.stdin.read(),
        sys.stdout.isatty(),
        sys.stderr.isatty(),
        sys.stdout.encoding,
        sys.stdout.errors,
    )


seed(40)
portrait("before")
loader = DataLoader(Numbers(), batch_size=BATCH, shuffle=True)
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} step {step} loss {loss.item()!r}")
portrait("after")
print("iterator", type(iter(loader)).__name__, sorted(vars(loader)))
print("worker info", get_worker_info(), "module hooks", len(model._forward_hooks), len(model[0]._forward_hooks))
print(
    "optimizer",
    sorted(optimizer.state_dict()),
    len(optimizer._optimizer_step_post_hooks),
    "doc",
    bool(nn.Module.__call__.__doc__),
)
try:
    model(torch.ones(2, 3))
except RuntimeError as error:
    import traceback

    print(
        "an error's own frames",
        [frame.name for frame in traceback.extract_tb(error.__traceback__)][-3:],
        error,
    )
atexit.register(print, "the script's own last word")
finish(model)
raise SystemExit("a last word on stderr")
