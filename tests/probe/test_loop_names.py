"""What is said of names that a loop carries from epoch to epoch: read in the source, and right for both kinds."""

from __future__ import annotations

import os
import textwrap

import pytest

from cockpit.probe.handoff.loop_names import carried, sentence

CARRIED = [
    ("lr = 20", "if bad(epoch):\n        lr /= 4", ["lr"]),
    ("best = None", "if best is None or acc(epoch) < best:\n        best = acc(epoch)", ["best"]),
    ("n = 0", "for x in data:\n        use(rate(n))\n        n += 1", ["n"]),
    ("it = iter(data)", "try: x = next(it)\n    except StopIteration: it = iter(data)", ["it"]),
    ("h = None", "for x in data:\n        y, h = model(x, h)", ["h"]),
    ("a, (b, c) = 1, (2, 3)", "a, b = b, a + c", ["b", "a"]),
    ("best = 9", "use(best := min(best, loss()))", ["best"]),
]
MADE_ANEW = [
    ("total = 0", "total = 0\n    for x in data:\n        total += x"),
    ("model = 1", "use(model)"),
    ("x = 5", "use([x for x in data])"),
    ("epoch = 0", "use(epoch)"),
    ("n = 0", "def inner():\n        n += 1"),
    ("", "loss = use(epoch)\n    use(loss)"),
    ("with start() as t:\n    pass", "t = now()\n    use(t)"),
]


def read(tmp_path, before, body, head="for epoch in tqdm(run.epochs(9)):"):
    script = tmp_path / "script.py"
    lines = [*textwrap.dedent(before).splitlines(), head]
    script.write_text("\n".join([*lines, "    " + body, ""]))
    os.utime(script, (1, 1))  # older than this process
    return script, carried(str(script), len(lines))


@pytest.mark.parametrize(("before", "body", "names"), CARRIED)
def test_what_the_loop_goes_on_with_is_named(tmp_path, before, body, names):
    assert list(read(tmp_path, before, body)[1]) == names


@pytest.mark.parametrize(("before", "body"), MADE_ANEW)
def test_what_each_epoch_makes_is_not(tmp_path, before, body):
    assert read(tmp_path, before, body)[1] == ()


def test_what_the_function_was_given_counts_as_set_before(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "def train(model, lr=1, *, n, **more):\n    for epoch in run.epochs(9):\n        lr /= 4; n += 1\n"
    )
    os.utime(script, (1, 1))
    assert carried(str(script), 2) == ("lr", "n")


@pytest.mark.filterwarnings("error")
def test_what_python_has_against_the_script_is_not_said_again(tmp_path, recwarn):
    _, found = read(tmp_path, "lr = 1; name = '\\d'", "lr /= 4")
    assert found == ("lr",) and not recwarn


def test_what_cannot_be_read_says_nothing(tmp_path):
    script, found = read(tmp_path, *CARRIED[0][:2])
    assert found and carried("<stdin>", 1) == carried(str(script), 1) == carried(str(tmp_path), 1) == ()
    os.utime(script)
    assert carried(str(script), 2) == (), "it was edited since this process began"
    assert sentence(()) is None and "a, b, c, d and 2 more from" in str(sentence(tuple("abcdef")))
