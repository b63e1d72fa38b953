"""Runs trainings two at a time and once each, so that many tests can look at the same run. Used by tests/e2e.

A torch import alone takes two seconds of a core: without sharing, the end-to-end tests would take an hour.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .bare import command_of, run_bare
from .outcome import TRAINERS, Outcome
from .under import run_under, sweep

AT_ONCE = 2


@dataclass(frozen=True)
class Job:
    """One training to run: ``options`` None means bare, else the options of ``cockpit run``.

    ``before`` stands before the script on the command line, such as ``("-W", "error")`` for the interpreter.
    """

    trainer: str
    options: tuple[str, ...] | None = None
    env: tuple[tuple[str, str], ...] = ()
    args: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    def command(self) -> list[str]:
        plain = command_of(TRAINERS / self.trainer, self.args)
        return [plain[0], *self.before, *plain[1:]] if self.before else plain


class Pool:
    """Jobs are begun in the order in which they are announced; each is run once however often it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._futures: dict[Job, Future[Outcome]] = {}

    def announce(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if job not in self._futures:
                scratch = self._folder / f"job{len(self._futures)}"
                self._futures[job] = self._threads.submit(_run, job, scratch)

    def result(self, job: Job) -> Outcome:
        self.announce([job])
        return self._futures[job].result()

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        sweep(self._folder)


def _run(job: Job, scratch: Path) -> Outcome:
    scratch.mkdir()
    if job.options is None:
        return run_bare(job.command(), scratch, dict(job.env))
    return run_under(job.command(), scratch, job.options, dict(job.env))
