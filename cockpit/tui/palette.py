"""The palette: style names to colours, for a dark and a light ground. Okabe–Ito hues, told apart by the colour-blind.

Read by ``paint`` only; drawing functions name a style, never a colour. Without colours (``mono``) only bold, dim
and reverse are left, so nothing may be said by colour alone.
"""

from __future__ import annotations

from collections.abc import Mapping

DARK: Mapping[str, str] = {
    "ground": "#101418",
    "bar": "#1a2129",
    "panel": "#141a20",
    "cursor": "#22303d",
    "old": "#3a4149",
    "text": "#d7dde5",
    "dim": "#8a8f98",
    "faint": "#59616b",
    "line": "#3d4650",
    "wait": "#D55E00",
    "start": "#F0A35E",
    "forward": "#56B4E9",
    "backward": "#3A86C8",
    "optimizer": "#CC79A7",
    "other": "#5d6670",
    "model": "#56B4E9",
    "model2": "#4aa3db",
    "model3": "#3f92cc",
    "cpu": "#E69F00",
    "cpu2": "#d08f00",
    "cpu3": "#b97f00",
    "rate": "#009E73",
    "rate2": "#078f69",
    "rate3": "#0b7f5e",
    "better": "#56B4E9",
    "worse": "#E69F00",
    "key": "#56B4E9",
    "alarm": "#FF7A1A",
    "ink": "#0b0e11",
}

LIGHT: Mapping[str, str] = {
    **DARK,
    "ground": "#fbfbf8",
    "bar": "#e9ebee",
    "panel": "#f3f4f4",
    "cursor": "#d6e6f3",
    "old": "#d0d4d8",
    "text": "#1d2228",
    "dim": "#5c646d",
    "faint": "#979ea6",
    "line": "#c3c9cf",
    "other": "#aab1b8",
    "model": "#0072B2",
    "model2": "#1880bd",
    "model3": "#318fc9",
    "cpu": "#b87400",
    "cpu2": "#c78514",
    "cpu3": "#d49629",
    "rate": "#007a59",
    "rate2": "#0b8a67",
    "rate3": "#1a9a75",
    "better": "#0072B2",
    "worse": "#a86500",
    "key": "#0072B2",
    "alarm": "#C04A00",
    "ink": "#0b0e11",
}

SIXTEEN: Mapping[str, str] = {
    **dict.fromkeys(DARK, "white"),
    **dict.fromkeys(("ground", "bar", "panel", "ink"), "black"),
    **dict.fromkeys(("line", "old"), "bright_black"),
    **dict.fromkeys(("forward", "model", "better", "key"), "bright_cyan"),
    **dict.fromkeys(("model2", "model3"), "cyan"),
    **dict.fromkeys(("cpu", "worse"), "bright_yellow"),
    **dict.fromkeys(("cpu2", "cpu3"), "yellow"),
    **dict.fromkeys(("rate", "rate2", "rate3"), "green"),
    "cursor": "blue",
    "text": "bright_white",
    "wait": "red",
    "start": "bright_red",
    "backward": "bright_blue",
    "optimizer": "bright_magenta",
    "alarm": "bright_red",
}
"""For terminals with sixteen colours: the nearest ones of the others would hide grey words on grey rows."""

THEMES: Mapping[str, Mapping[str, str]] = {"dark": DARK, "light": LIGHT, "sixteen": SIXTEEN}
CHOICES = ("dark", "light")
ATTRIBUTES = frozenset(("bold", "reverse"))
FAINT_WHEN_MONO = frozenset(("dim", "faint", "line", "other"))
