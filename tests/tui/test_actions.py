"""The table of actions: every key is one action's, and every action on the run has a verb of the command line."""

from __future__ import annotations

from collections import Counter

from cockpit.cli.verbs import BY_NAME as VERBS
from cockpit.history.actions import ACTIONS, BY_KEY, IN_LEAVE
from cockpit.tui.glyphs import BRAILLE
from cockpit.tui.rows import text_of


def test_no_key_has_two_meanings() -> None:
    keys = Counter(key for action in ACTIONS if action.name not in IN_LEAVE for key in action.keys)
    assert [key for key, times in keys.items() if times > 1] == []
    assert set(BY_KEY) == set(keys)
    assert len({action.name for action in ACTIONS}) == len(ACTIONS)


def test_every_action_on_the_run_has_a_verb_that_exists() -> None:
    for action in ACTIONS:
        assert action.verb is None or action.verb in VERBS, f"{action.name}: cockpit {action.verb} is no verb"
        assert not action.acts or action.verb, f"{action.name} acts on the run and has no verb"


def test_help_fits_a_terminal_of_80_by_24() -> None:
    from cockpit.tui.dialogs import help_rows

    page = text_of(help_rows(80, 24, 0, BRAILLE))
    assert len(page.split("\n")) <= 24 and "scroll" not in page
    assert all(action.help in page for action in ACTIONS)
    assert all(f"cockpit {action.verb}" in page for action in ACTIONS if action.verb)
