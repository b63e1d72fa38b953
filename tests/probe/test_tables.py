"""A table made of ``len(loader)`` that more steps run past is found in the source; what only looks like one is not."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from cockpit.probe.tables import LARGEST, taken_to_its_end

LOOP = "for x in loader:\n    step(%s)\n    n += 1\n"


def found(tmp_path: Any, source: str) -> Any:
    """What is found for the first line with ``len(loader)``."""
    file = tmp_path / "train.py"
    file.write_text(textwrap.dedent(source))
    line = next(number for number, text in enumerate(source.splitlines(), 1) if "len(loader)" in text)
    return taken_to_its_end(str(file), line)


PAST = {
    "a list, one a step": "table = [lr(s) for s in range(E * len(loader))]\n" + LOOP % "table[n]",
    "of torch": "table = torch.linspace(.1, 0, len(loader) * E).tolist()\n" + LOOP % "table[n]",
    "of numpy, worked out": "t = .1 * np.cos(np.arange(int(E * len(loader))) / 9)\n" + LOOP % "float(t[n])",
    "by other names": "per = len(loader)\ntotal = per * E - 3\na = [0.1] * total\nb = np.array(a)\n" + LOOP % "b[n]",
    "on top of a start": "table = np.concatenate([start, np.linspace(1, 0, len(loader))])\n" + LOOP % "table[n]",
    "appended one by one": "table = []\nfor s in range(len(loader)):\n    table.append(lr(s))\n" + LOOP % "table[n]",
    "written into": "seen = torch.zeros(len(loader), 3)\nfor i, x in enumerate(tqdm(loader)):\n    seen[i] = loss\n",
    "made by a function": "def cosine(count):\n    made = [1 / (1 + s) for s in range(count)]\n    return made\n"
    "table = cosine(E * len(loader))\n" + LOOP % "table[n]",
    "handed to a function": "def train(loader, rates):\n    for i, x in enumerate(loader):\n        step(rates[i])\n"
    "rates = np.zeros(len(loader))\ntrain(loader, rates)\n",
    "in an object": "class Run:\n    def __init__(self, count):\n        self.table = np.ones(count)\n"
    "        self.n = 0\n"
    "    def step(self):\n        self.n += 1\n        return self.table[self.n]\nrun = Run(len(loader))\n",
    "of a schedule's function": "t = list(range(len(loader)))\ns = LambdaLR(opt, lambda step: t[step])\n",
    "taken one after the other": "t = iter(np.ones(len(loader)).tolist())\nfor x in loader:\n    step(next(t))\n",
    "used up": "t = deque([.1] * len(loader))\nfor x in loader:\n    step(t.popleft())\n",
    "in main": "def main():\n    t = [0] * len(loader)\n    for x in loader:\n        t[n]\n        n += 1\n",
}
INNOCENT = {
    "printed": "print(len(loader), 'batches')\n",
    "printed as text": "print(f'{len(loader)} batches of {E}')\nlog.info('%d', len(loader))\n",
    "a bar": "bar = tqdm(total=E * len(loader))\n" + LOOP % "bar.update(1)",
    "an average": "total = 0.0\nfor i, x in enumerate(loader):\n    total += x[i]\nprint(total / len(loader))\n",
    "every tenth of it": "often = len(loader) // 10\nfor i, x in enumerate(loader):\n    i % often or h[i]\n",
    "steps of a schedule that only goes on": "s = CosineAnnealingLR(opt, T_max=E * len(loader))\n" + LOOP % "0",
    "a share of all": "total = E * len(loader)\n" + LOOP % "out[n] * n / total",
    "round and round": "t = [0] * len(loader)\n" + LOOP % "t[n % len(t)]",
    "the last stays": "t = [0] * len(loader)\n" + LOOP % "t[min(n, len(t) - 1)]",
    "asked first": "t = [0] * len(loader)\nfor x in loader:\n    if n < len(t):\n        step(t[n])\n    n += 1\n",
    "asked first, in words": "t = [0] * len(loader)\n" + LOOP % "t[n] if n < len(t) else 0",
    "caught": "t = [0] * len(loader)\nn = 0\nfor x in loader:\n    n += 1\n    try:\n        t[n]\n"
    "    except IndexError:\n        pass\n",
    "with something for the end": "t = iter([0] * len(loader))\nfor x in loader:\n    next(t, 0)\n",
    "as many as it has": "t = [0] * len(loader)\nfor i in range(len(t)):\n    t[i] = i\n"
    "for i, v in enumerate(t):\n    t[i] += v\n",
    "one an epoch": "t = np.ones(len(loader))\nfor epoch in range(E):\n    t[epoch], t[0], t[-1], t[:5]\n",
    "another of that name": "def a():\n    t = [0] * len(loader)\n    print(t)\ndef b(t, n):\n    return t[n]\n",
    "not always that": "t = [0] * len(loader)\nt = load('rates')\n" + LOOP % "t[n]",
    "grown by the training": "size = len(loader)\nlosses = []\n"
    "for x in loader:\n    losses.append(x)\n    losses[n]\n    n += 1\n",
    "what a function tells": "acc = evaluate(model, len(loader))\n" + LOOP % "acc[n]",
    "of another length": "n_val = len(loader)\nt = [0] * len(other)\n" + LOOP % "t[n]",
    "as a key of sorting": "t = [0] * len(loader)\nsorted(a, key=lambda i: t[i])\n",
    "no Python any more": "print(len(loader)\n",
}


@pytest.mark.parametrize("source", PAST.values(), ids=PAST)
def test_a_table_that_more_steps_run_past_is_found(tmp_path: Any, source: str) -> None:
    use = found(tmp_path, source)
    assert use is not None and use.name in source.splitlines()[use.line - 1]


@pytest.mark.parametrize("source", INNOCENT.values(), ids=INNOCENT)
def test_whatever_is_not_certain_is_no_table(tmp_path: Any, source: str) -> None:
    assert found(tmp_path, source) is None


def test_what_cannot_be_read_is_no_table(tmp_path: Any) -> None:
    large = tmp_path / "large.py"
    large.write_text(PAST["used up"] + "#" * LARGEST)
    assert [taken_to_its_end(file, 1) for file in (None, "<stdin>", str(tmp_path), str(large))] == [None] * 4
