"""A dump as people read it: what each process has answered, and of those that have not what the kernel says, and why.

Built from the engine's answer to ``dump`` and the state that follows it; shared by the command line and the screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cockpit.model.stacks import StackPart
from cockpit.wire.codec import from_plain

from .state import State

ANSWER_S = 5.0
"""So long an answer may take: a few beats of the probe, and the time that a loaded machine needs for them."""
SILENT = (
    "the training does not answer: it hangs in code that holds the interpreter, is stopped, has not ended its first"
    " step yet, or none since it has started other processes"
)
NOBODY = "no process of the run has imported torch under the probe: there is nobody to ask"


@dataclass(frozen=True)
class Dump:
    """``answers`` by process id; ``kernel``: each asked process as the kernel sees it."""

    pids: tuple[int, ...] = ()
    answers: Mapping[int, tuple[StackPart, ...]] = field(default_factory=dict)
    kernel: Mapping[int, tuple[StackPart, ...]] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether anybody has."""
        return bool(self.answers)

    @property
    def whole(self) -> bool:
        """Whether all have that were asked."""
        return bool(self.pids) and set(self.pids) <= set(self.answers)

    @property
    def why(self) -> str:
        """Why nobody has, where nobody has."""
        return SILENT if self.pids else NOBODY

    def plain(self) -> dict[str, Any]:
        """As JSON says it."""
        return {
            "processes": [
                {
                    "pid": pid,
                    "answered": pid in self.answers,
                    "parts": [{"title": part.title, "lines": list(part.lines)} for part in self._parts(pid)],
                }
                for pid in self._shown()
            ]
        }

    def _shown(self) -> tuple[int, ...]:
        return self.pids or tuple(self.kernel)

    def _parts(self, pid: int) -> tuple[StackPart, ...]:
        return self.answers.get(pid) or self.kernel.get(pid, ())


def dump_of(asked: Mapping[str, Any], state: State) -> Dump:
    """What is known by now. ``asked`` is what the engine has said to the verb."""
    return Dump(
        tuple(int(pid) for pid in asked.get("pids", ())),
        {seen.pid: seen.parts for seen in state.stacks if seen.id == asked.get("id")},
        {int(pid): from_plain(tuple[StackPart, ...], parts) for pid, parts in asked.get("kernel", {}).items()},
    )


def lines_of(dump: Dump) -> list[str]:
    """As text, a paragraph a thread or worker."""
    lines: list[str] = []
    for pid in dump._shown():
        silent = "" if pid in dump.answers else ": no answer, this is what the kernel sees"
        lines += [f"process {pid}{silent}"]
        for part in dump._parts(pid):
            lines += ["", f"  {part.title}", *(f"    {line}" for line in part.lines)]
        lines.append("")
    return lines[:-1]
