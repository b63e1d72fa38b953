"""What a restart would come to, without asking for it: whether it can be had, why not, and what runs now.

Called by ``restarts`` for the screen's view. It decides by the very function that decides in earnest, so that no other
word is shown than the one that would be said. It begins nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.history.state import State
from cockpit.model.environment import BY_NAME
from cockpit.model.errors import CockpitError

from . import preload
from .next_environ import theirs, told
from .restart_plan import Standing, wanted

HASH_SEED = "PYTHONHASHSEED"
"""Without it each process goes through a set of strings in an order of its own, which nothing can carry over."""


def other_hashes(environ: Mapping[str, str] | None, env: Mapping[str, str | None]) -> bool:
    """Whether the new process goes through sets of strings in another order than the present one, as far as known."""
    if environ is None:
        return False
    return environ.get(HASH_SEED) in (None, "", "random") or HASH_SEED in env


def preview(state: State, standing: Standing, env: Mapping[str, str | None], inject: str) -> dict[str, Any]:
    """``reason``: why it cannot be had, None where it can. ``values``: by name what the present process was started
    with, as far as that may be shown; ``set_early``: what the script sets by itself, whatever the environment says;
    ``other_hashes``: whether the new process goes through sets of strings in another order; ``doubt``: why it may not
    be able to restore what it is handed."""
    known, environ = state.environment or {}, standing.environ
    try:
        wanted(state, standing, env, inject)
        reason = preload.why_not(env, environ or {})
    except CockpitError as error:
        reason = str(error)
    names = dict.fromkeys((*BY_NAME, *known, *env))
    found = (
        {} if environ is None else {name: told(known, name, theirs(name, environ.get(name), inject)) for name in names}
    )
    session = standing.session or {}
    return {
        "reason": reason, "values": found, "set_early": list(standing.set_early),
        "names": list(session.get("names") or ()), "doubt": session.get("doubt"),
        "other_hashes": other_hashes(environ, env),
    }  # fmt: skip
