"""The loop of every tutorial, on a machine where things go wrong: FAULTS names what strikes in each epoch ("none").

What strikes, strikes loader workers or whatever starts them; without workers this is a quiet little training that
always prints the same. It has never heard of any tool that may watch it. WORKERS are the script's own; a watchdog of
the script ends it after WATCHDOG_S seconds, as people do who have been hung before. With ALARM_S it trains anew for
each fault, and gives up those that are HANGING after so long.
"""

import contextlib
import errno
import json
import os
import re
import resource
import signal
import sys
import threading
import time
from multiprocessing import reduction

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from toy import BATCH, Numbers, finish, mlp, seed

FAULTS = os.environ.get("FAULTS", "none").split(",")
WORKERS = int(os.environ.get("WORKERS", "0"))
PERSISTENT = bool(os.environ.get("PERSISTENT"))
WATCHDOG_S = float(os.environ.get("WATCHDOG_S", "0"))
ALARM_S = float(os.environ.get("ALARM_S", "0"))
HANGING = os.environ.get("HANGING", "").split(",")
PINNED = bool(os.environ.get("PINNED"))
STRIKE_AT = 5
SIGNALS = {"term": "SIGTERM", "segv": "SIGSEGV", "bus": "SIGBUS", "abort": "SIGABRT"}
LOCK = threading.Lock()
fault = "none"


class Odd(Exception):
    def __init__(self, path, line):
        super().__init__(f"{path}:{line}")


def local(words):
    class Skipped(Exception):
        pass

    return Skipped(words)


class Faulty(Dataset):
    def __init__(self):
        self.numbers = Numbers()
        self.order = []
        if fault == "unpicklable":
            self.handle = NoReturn()

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        info = get_worker_info()
        if info is not None:
            strike_worker(info, index)
        x, y = self.numbers[index]
        return x, y, index


def strike_worker(info, index):
    """In a worker, before it loads ``index``. Four samples in it has given one or two batches at most."""
    loaded = Faulty.loaded = getattr(Faulty, "loaded", 0) + 1
    late = loaded > 2 * BATCH
    if fault == "die-first" and info.id == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.startswith("signal-") and late:
        signal.signal(getattr(signal, SIGNALS[fault[7:]]), signal.SIG_DFL)
        os.kill(os.getpid(), getattr(signal, SIGNALS[fault[7:]]))
    elif fault == "status" and late:
        os._exit(3)
    elif fault == "sys-exit" and late:
        sys.exit(4)
    elif fault == "raise":
        raise KeyError("no such connection in a worker")
    elif fault == "raise-late" and late:
        raise OSError(errno.ESTALE, "stale handle in a worker")
    elif fault == "raise-late-odd" and late:
        raise Odd("late.bin", index)
    elif fault == "raise-local" and late:
        raise local("skip this one")
    elif fault == "raise-odd":
        raise Odd("data.bin", index)
    elif fault == "hang-lock":
        with LOCK:
            pass
    elif fault in ("hang-late", "hang-deaf") and late and info.id == 0:
        if fault == "hang-deaf":
            signal.signal(signal.SIGTERM, lambda *_: None)
        while True:
            time.sleep(60)
    elif fault == "stopped" and late and info.id == 0:  # as soon as the training waits for the tensors of a batch
        reduction.send_handle = lambda *_: (os.kill(os.getpid(), signal.SIGSTOP), time.sleep(60))


def begin_worker(_):
    if fault == "raise-init":
        raise OSError("no licence for a worker")
    if fault == "shm":  # a file in /dev/shm cannot grow: what a full one answers, if with another number
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
    if fault == "memory":
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (32 << 20),) * 2)
    if fault == "deaf-end":  # its clean-up never ends, and it does not mind being told to
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Thread(target=time.sleep, args=(600,)).start()


class NoReturn:
    def __reduce__(self):
        raise TypeError("cannot be pickled")


def collate(items):
    batch = default_collate(items)
    if get_worker_info() is not None:
        if fault == "raise-collate":
            raise RuntimeError("the collate function needs the main process")
        if fault == "unsendable":
            return [*batch, NoReturn()]
        if fault == "message":
            return [*batch, bytes(30 << 20)]
        if fault == "memory":
            return [*batch, bytearray(256 << 20)]
    return batch


def workers():
    """Process ids of the loader workers that run, oldest first."""
    found = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            for pid in open(f"/proc/self/task/{thread}/children").read().split():
                if state_of(pid) != "Z" and open(f"/proc/{pid}/comm").read().startswith("pt_data_worker"):
                    found.append(int(pid))
    return sorted(found)


def state_of(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def kill(victims):
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 5
    while any(state_of(pid) != "Z" for pid in victims) and time.monotonic() < end:
        time.sleep(0.001)  # the training computes; this is where the signal of a child's death arrives
    time.sleep(0.05)


def moment(name):
    """The training has come to this place: what is to happen here, happens once an epoch."""
    if fault == "kill-" + name and moment.step == STRIKE_AT:
        kill(workers()[:1])


class Watched(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = mlp()

    def forward(self, x):
        moment("forward")
        y = self.inner(x)
        if y.requires_grad:
            y.register_hook(lambda grad: moment("backward"))
        return y


class Optimizer(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        moment("optimizer")


def between(step, kept, validation):
    """The rest of a step: logging, a look at the validation set, whatever the fault is about."""
    moment("between")
    if step != STRIKE_AT:
        return
    if fault == "kill-all":
        kill(workers())
    elif fault in ("kill-queued", "kill-pinning", "message"):
        time.sleep(0.4)  # by now all that may lie ready does, or the worker stands in the middle of its message
        kill(workers()[:1])
    elif fault == "kill-oldest":
        kill(workers()[:1])
    elif fault == "kill-validating":
        for number, _ in enumerate(validation):
            if number == 1:
                kill(workers()[:1])
    elif fault == "descriptors-late":
        soft = len(os.listdir("/proc/self/fd")) + 2
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def begin_epoch(epoch):
    """What must be so before the workers of this epoch are started."""
    globals()["fault"] = FAULTS[epoch]  # under the word "global" spawned workers would be refused before they fail
    moment.epoch, moment.step, Faulty.loaded = epoch, -1, 0
    soft, hard = begin_epoch.limits
    if fault == "descriptors":
        soft = len(os.listdir("/proc/self/fd")) + 6
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.fork = begin_epoch.fork
    if fault in ("fork", "fork-second"):
        os.fork = Refusing(os.fork, 2 if fault == "fork-second" else 1)
    if fault == "hang-lock":
        LOCK.acquire()


class Refusing:
    def __init__(self, fork, number):
        self.fork, self.number = fork, number

    def __call__(self):
        self.number -= 1
        if self.number == 0:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return self.fork()


def end_epoch():
    if fault == "hang-lock":
        LOCK.release()
    if fault == "kill-idle":
        kill(workers()[:1])
    if fault == "kill-all-idle":
        kill(workers())


def give_up():
    """The script's own watchdog: it has hung."""
    print("HUNG", flush=True)
    for pid in workers():
        os.kill(pid, signal.SIGKILL)
    os._exit(14)


def main():
    globals()["fault"] = FAULTS[0]
    if fault == "unpicklable":
        torch.multiprocessing.set_start_method("spawn")
    if PINNED:  # a device that there is not: pinning is a copy in the thread that pins
        torch.accelerator.is_available = lambda: True
        torch.accelerator.current_device_index = lambda: 0
        torch.accelerator.set_device_index = lambda index: None
        torch.Tensor.pin_memory = lambda self, device=None: self.clone()
    if WATCHDOG_S:
        dog = threading.Timer(WATCHDOG_S, give_up)
        dog.daemon = True
        dog.start()
    seed(31)
    begin_epoch.limits, begin_epoch.fork = resource.getrlimit(resource.RLIMIT_NOFILE), os.fork
    data = Faulty()
    init = begin_worker
    loader = DataLoader(data, BATCH, shuffle=True, collate_fn=collate, worker_init_fn=init, num_workers=WORKERS,
                        persistent_workers=PERSISTENT, pin_memory=PINNED)  # fmt: skip
    validation = DataLoader(Numbers(32), BATCH)
    model = Watched()
    optimizer = Optimizer(model.parameters(), lr=0.05, momentum=0.9)
    samples = []
    for epoch in range(len(FAULTS)):
        begin_epoch(epoch)
        seen, kept = [], []
        for step, (x, y, index, *_) in enumerate(loader):
            moment.step = step
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            seen += index.tolist()
            kept.append(x)
            print(f"epoch {epoch} step {step} loss {loss.item()!r} of {index.tolist()}")
            between(step, kept, validation)
        samples.append(sorted(seen) == list(range(len(data))))
        end_epoch()
    del loader  # persistent workers end with it
    finish(model, samples=samples, children=len(workers()))


def died(error):
    words = re.sub(r"\d{2,}", "N", (str(error).strip() or "nothing").splitlines()[-1])
    print(f"DIED {type(error).__name__}: {words}", flush=True)


def ring(*_):
    raise TimeoutError("the script waits no longer")


def each_by_itself():
    """A small training for each of FAULTS, as people do who try one data set after the other; what ends one is told."""
    names, limits, fork = list(FAULTS), resource.getrlimit(resource.RLIMIT_NOFILE), os.fork
    signal.signal(signal.SIGALRM, ring)
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5  # 5 s for each worker that hangs is long
    for name in names:
        FAULTS[:] = [name]
        signal.setitimer(signal.ITIMER_REAL, ALARM_S if name in HANGING else 0)
        try:
            main()
        except Exception as error:
            with contextlib.suppress(RuntimeError):  # the signal of the worker's end may still come
                time.sleep(0.1)
            died(error)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.fork = fork
    print(f"FINAL {json.dumps({'children': len(workers())})}")


if __name__ == "__main__":
    if ALARM_S:
        each_by_itself()
    else:
        try:
            main()
        except Exception as error:
            died(error)
            os._exit(1)
