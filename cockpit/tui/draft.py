"""What a person has chosen in the view of hot restarts and not asked for yet, and what a restart would come to.

Held by ``restarting`` as one frozen value, part of the view, drawn by ``restart``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cockpit.history.state import State
from cockpit.model.environment import BY_NAME
from cockpit.model.knobs import ENV

MORE = "another variable"
"""The last row: any name."""


@dataclass(frozen=True)
class Draft:
    """``env``: what is chosen and not asked for yet (None: taken away). ``chosen``: the name under the cursor (empty:
    the first; ``MORE``: the last row). ``answer``: what the engine says a restart would come to; None before it has.
    ``values``: what runs now, by name, as far as it is known and may be shown."""

    env: Mapping[str, str | None] = field(default_factory=dict)
    chosen: str = ""
    answer: Mapping[str, Any] | None = None
    values: Mapping[str, str | None] = field(default_factory=dict)

    def answered(self, answer: Mapping[str, Any]) -> Draft:
        """The same with what the engine has said; values that it cannot tell any more are the last known ones."""
        found = answer.get("values")
        return replace(self, answer=answer, values=found if isinstance(found, Mapping) and found else self.values)


def names_of(draft: Draft, state: State) -> list[str]:
    """The rows: what was asked for once, what is chosen, what is worth trying; and one more."""
    pending = [name[len(ENV) :] for entry in state.ledger for name in entry.asked if name.startswith(ENV)]
    known = dict.fromkeys((*BY_NAME, *(state.environment or {}), *pending, *draft.env))
    return [*known, MORE]


def cursor_of(draft: Draft, state: State) -> int:
    """Where the chosen row stands."""
    names = names_of(draft, state)
    return names.index(draft.chosen) if draft.chosen in names else 0
