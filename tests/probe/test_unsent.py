"""What a worker cannot send, it says: torch's own queue, our answer in place of its traceback, in this process."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace
from typing import Any

import pytest
from torch._utils import ExceptionWrapper

from cockpit.probe import unsent


def sent(item: Any) -> Any:
    queue = multiprocessing.get_context("fork").Queue()
    unsent.ready(SimpleNamespace(_worker_result_queue=queue), ExceptionWrapper)
    try:
        queue.put(item)
        return queue.get(timeout=10)
    finally:
        queue.close()
        queue.join_thread()


def raised(words: str) -> ExceptionWrapper:
    class Local(Exception):
        pass

    try:
        raise Local(words)
    except Local:
        return ExceptionWrapper(where="in a worker")


def test_what_can_be_sent_is_sent() -> None:
    assert sent((3, [1, 2])) == (3, [1, 2])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            (each for each in [1]),
            "a worker cannot send what it has loaded: TypeError: cannot pickle 'generator' object",
        ),
        (raised("skip\nthis"), "a worker cannot send what the dataset raised,"),
    ],
    ids=["a batch", "an exception"],
)
def test_what_cannot_is_told_in_its_place(data: Any, words: str) -> None:
    number, told = sent((3, data))
    assert number == 3 and told.where == unsent.WHERE
    with pytest.raises(RuntimeError) as error:
        told.reraise()
    assert str(error.value).splitlines()[-1].startswith("RuntimeError: " + words)


def test_what_is_no_batch_fails_as_it_always_has(capfd: Any) -> None:
    queue = multiprocessing.get_context("fork").Queue()
    unsent.ready(SimpleNamespace(_worker_result_queue=queue), ExceptionWrapper)
    queue.put(each for each in [1])
    queue.put("next")
    assert queue.get(timeout=10) == "next"
    queue.close()
    queue.join_thread()
    assert "cannot pickle 'generator' object" in capfd.readouterr().err
