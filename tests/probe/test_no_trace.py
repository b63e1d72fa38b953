"""No toggle, no trace: with nothing asked, a training under the probe is to the bit what it is without."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine, bare_env, finish, launch, probe_env, script

HARD_TO_FOOL = """
    import copy, hashlib, io, pickle, random, sys, warnings
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    torch.manual_seed(3)
    random.seed(3)

    class Rows(Dataset):
        def __len__(self):
            return 50
        def __getitem__(self, i):
            return torch.full((4,), float(i)) + torch.rand(4) + random.random(), i

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.norm, self.drop, self.b = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1)
        def forward(self, x):
            return self.b(self.drop(self.norm(self.a(x)).relu()))
        def __getstate__(self):  # carries everything, as some modules do
            return dict(self.__dict__)

    model = Net()
    twin = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    mine = torch.Generator().manual_seed(9)
    loaders = [
        DataLoader(Rows(), batch_size=8, shuffle=True),
        DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=2, generator=mine),
        DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True),
    ]
    if "warn" in sys.argv:
        class Overlong(IterableDataset):
            def __repr__(self):
                return "Overlong()"
            def __len__(self):
                return 2
            def __iter__(self):
                return iter(torch.ones(4, 4))
        long = DataLoader(Overlong(), batch_size=None)
        len(long)
        for _ in long:
            pass
        warnings.warn("the script's own")
    for epoch in range(3):
        for loader in loaders:
            model.train()
            for x, i in loader:
                optimizer.zero_grad()
                loss = model(x).pow(2).mean()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                total = sum(model(x).sum().item() for x, _ in loader)
            print(epoch, repr(loss.item()), repr(total), i.tolist())
        schedule.step()
        for copied in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
            with torch.no_grad():
                next(copied.parameters()).add_(0.5 if copied is not model else 0)
            print(copied(torch.ones(1, 4)).item(), sorted(copied.state_dict()))
        other = copy.copy(model)
        other._modules = dict(copy.deepcopy(model)._modules)
        with torch.no_grad():
            other.b.bias += 1
        print((other(torch.ones(1, 4)) - model(torch.ones(1, 4))).item())
    buffer = io.BytesIO()
    torch.save(model, buffer)
    print(hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.state_dict().values())).hexdigest())
    print(torch.random.get_rng_state().sum().item(), mine.get_state().sum().item(), random.random())
    plain = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    print(plain._compiled_call_impl, plain(torch.ones(1, 4)).item())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(torch.jit.script(model)(torch.ones(1, 4)).item())
    print([type(m).__call__ is nn.Module.__call__ for m in (model, twin)], torch.is_grad_enabled())
    if "raise" in sys.argv:
        class Rotten(Rows):
            def __getitem__(self, i):
                raise LookupError("theirs")
        next(iter(DataLoader(Rotten())))
    """


def both(tmp_path, text, *args, python=(), **env):
    """What the same script leaves behind under the probe and bare, and what the engine heard."""
    path = script(tmp_path, text)
    engine = FakeEngine(engine_path(tmp_path))
    ours = launch(path, probe_env(tmp_path / "run", {}, **env), *args, python=python)
    bare = launch(path, bare_env(**env), *args, python=python)
    results = [(*finish(process), process.returncode) for process in (ours, bare)]
    return results[0], results[1], engine


def engine_path(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "s"


@pytest.mark.parametrize(("args", "python"), [(("warn", "raise"), ()), ((), ("-W", "error"))])
def test_nothing_is_left_behind(tmp_path, args, python):
    ours, bare, engine = both(tmp_path, HARD_TO_FOOL, *args, python=python)
    assert ours == bare
    assert bare[2] == (1 if args else 0)
    assert engine.wait("hello", trains=True)["off"] == {}
    assert engine.wait("tick", step=63)


COMPILED = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.utils import compilation_time_metrics, counters

    torch.manual_seed(0)
    graphs = []

    def backend(graph, inputs):
        graphs.append(len(list(graph.graph.nodes)))
        return lookup_backend("aot_eager")(graph, inputs)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(4, 8), nn.Linear(8, 1), nn.Dropout(0.1)
        def forward(self, x):
            return self.b(self.drop(self.a(x).relu()))

    data = torch.randn(26, 4)
    nets = [Net() for _ in range(4)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    whole = torch.compile(nets[0], backend=backend, fullgraph=True)
    nets[1].compile(backend=backend, fullgraph=True)

    @torch.compile(backend=backend, fullgraph=True)
    def loss_of(x):
        return nets[2](x).pow(2).mean()

    @torch.compile(backend=backend)
    def broken(x):
        loss = nets[3](x).pow(2).mean()
        loss.backward()
        return loss

    for epoch in range(3):
        for x in DataLoader(data, batch_size=8):
            for optimizer in optimizers:
                optimizer.zero_grad()
            losses = [whole(x).pow(2).mean(), nets[1](x).pow(2).mean(), loss_of(x)]
            for loss in losses:
                loss.backward()
            losses.append(broken(x))
            for optimizer in optimizers:
                optimizer.step()
            print(epoch, *(repr(loss.item()) for loss in losses))
    print(graphs)
    for kind in sorted(counters):
        print(kind, sorted((str(name), number) for name, number in counters[kind].items()))
    print(sorted((name, len(times)) for name, times in compilation_time_metrics.items()))
    for loss in losses[1:3]:
        (loss.detach() * nets[1](x).mean()).backward()
    torch.compile(optimizers[1].step, backend=backend)()
    print(graphs, len(counters["graph_break"]))

    @torch.compile(backend=backend, fullgraph=True)
    def whole_step(x):
        loss = torch.nn.functional.mse_loss(nets[2](x), x[:, :1])
        loss.backward()
        return loss.detach()

    @torch.compile(backend=backend, fullgraph=True)
    def slope(x):
        return torch.autograd.grad(nets[2](x).pow(2).mean(), [*nets[2].parameters()])[0].sum()

    with torch._dynamo.config.patch(trace_autograd_ops=True):
        print(repr(whole_step(torch.ones(8, 4)).item()), graphs)
        print(repr(slope(torch.ones(8, 4)).item()), graphs)
    """


def test_dynamo_sees_the_same_graphs_and_compiles_as_often(tmp_path):
    ours, bare, engine = both(tmp_path, COMPILED)
    assert ours[0] == bare[0]
    assert ours[2] == bare[2] == 0, bare[1]
    assert engine.of("hello")[-1]["off"] == {}
    assert engine.wait("tick", step=12)
