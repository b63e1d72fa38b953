"""A number with its noun, for people: ``1 step``, ``34 steps``. Used wherever something is counted in words."""

from __future__ import annotations


def noun(number: int | None, one: str, many: str | None = None) -> str:
    """What ``number`` of them are called."""
    return one if number == 1 else many or one + "s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 step``, ``34 steps``."""
    return "%d %s" % (number, noun(number, one, many))
