"""Makes the README's pictures from a recorded run: ``python screenshots/make.py [NAME…]``. The same every time.

Runs the real app without a terminal on a frozen clock, takes the lines it drew, writes an SVG, and lets a headless
Chromium turn it into a PNG (others get braille and spaces wrong). Needs ``chromium`` on the PATH or in $CHROMIUM.
The recording is the journal of a real ``cockpit demo``; record.py beside this file makes it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent, HERE.parent / "tests"):
    sys.path.insert(0, str(folder))

from rich.color import Color, ColorTriplet  # noqa: E402
from rich.segment import Segment  # noqa: E402
from svg import Piece, picture  # noqa: E402
from tui import scenes  # noqa: E402
from tui.fake_link import FakeLink  # noqa: E402

from cockpit.history.fold import fold_all  # noqa: E402
from cockpit.history.journal import read_events  # noqa: E402
from cockpit.history.state import State  # noqa: E402
from cockpit.tui.cockpit import Cockpit  # noqa: E402
from cockpit.tui.palette import THEMES  # noqa: E402
from cockpit.tui.terminal import Terminal  # noqa: E402


@dataclass(frozen=True)
class Shot:
    """A picture: the state it shows, its size, the keys pressed first."""

    scene: Callable[[], tuple[State, float]]
    size: tuple[int, int] = (80, 24)
    keys: tuple[str, ...] = ()
    terminal: Terminal = field(default_factory=Terminal)
    data: Path = Path("/nonexistent")
    """The folder with the training's output."""


def recorded() -> tuple[State, float]:
    """The end of the recorded demo, as it stood on the screen then."""
    state = fold_all(read_events(HERE / "demo"))
    return state, state.at_s


SHOTS = {
    "cockpit-80x24": Shot(recorded, data=HERE / "demo"),
    "cockpit-120x40": Shot(recorded, (120, 40), data=HERE / "demo"),
}
MORE = {
    "early": Shot(scenes.early),
    "wide": Shot(scenes.steady, (200, 60)),
    "middle": Shot(scenes.steady, (120, 40)),
    "gpu-80": Shot(scenes.on_a_gpu),
    "gpu-120": Shot(scenes.on_a_gpu, (120, 40)),
    "gpu-200": Shot(scenes.on_a_gpu, (200, 60)),
    "about": Shot(scenes.steady, (120, 40), ("8", "enter")),
    "light": Shot(scenes.steady, keys=("t",)),
    "mono": Shot(scenes.steady, terminal=Terminal(mono=True)),
    "block": Shot(scenes.steady, terminal=Terminal(glyphs="block")),
    "ascii": Shot(scenes.steady, terminal=Terminal(glyphs="ascii")),
    "light-gpu": Shot(scenes.on_a_gpu, (120, 40), ("t",)),
    "tried": Shot(scenes.steady, (120, 40), ("v",)),
    "ranks": Shot(scenes.two_ranks, (120, 40)),
    "find": Shot(scenes.steady, (120, 40), ("slash", *"loss", "space", "0"), data=HERE / "demo"),
    "found": Shot(scenes.steady, (80, 24), ("slash", *"loss", "enter", "N"), data=HERE / "demo"),
    "help": Shot(scenes.steady, keys=("question_mark",)),
    "leave": Shot(scenes.steady, keys=("q",)),
    "save": Shot(scenes.steady, keys=("s",)),
    "toast": Shot(scenes.steady, keys=("9", "right")),
}
"""Not kept, for looking at: named on the command line."""


async def drawn(shot: Shot) -> list[list[Segment]]:
    """The lines of the screen after its keys."""
    state, now_s = shot.scene()
    link = FakeLink(state)
    app = Cockpit(link.connect, shot.data, shot.terminal, clock=lambda: now_s)
    app.look = "dark"  # whatever the terminal is that this runs in
    async with app.run_test(size=shot.size) as pilot:
        while app.feed.state is None:
            await pilot.pause(0.02)
        app.tick()  # the output
        await pilot.press(*shot.keys)
        await pilot.pause(0.2)
        return [list(strip) for strip in app.screen._compositor.render_strips()]


def svg_of(shot: Shot) -> str:
    """The picture of a shot."""
    ground = THEMES["light" if "t" in shot.keys else "dark"]["ground"]
    lines = asyncio.run(drawn(shot))
    return picture([pieces_of(line, ground) for line in lines], ground, "cockpit demo")


def pieces_of(line: list[Segment], ground: str) -> list[Piece]:
    """The segments of a line with their colours resolved."""
    found = []
    for text, style, _ in line:
        if style is None:
            found.append(Piece(text, "#d7dde5", ground))
            continue
        color, back = _hex(style.color, "#d7dde5"), _hex(style.bgcolor, ground)
        if style.reverse:
            color, back = back, color
        if style.dim:
            color = _mix(color, back)
        found.append(Piece(text, color, back, bool(style.bold)))
    return found


def _hex(color: Color | None, otherwise: str) -> str:
    return color.triplet.hex if color is not None and color.triplet is not None else otherwise


def _mix(color: str, ground: str) -> str:
    both = [[int(each[at : at + 2], 16) for at in (1, 3, 5)] for each in (color, ground)]
    return ColorTriplet(*(int(0.55 * a + 0.45 * b) for a, b in zip(*both, strict=True))).hex


def save(name: str, shot: Shot, folder: Path) -> Path:
    """Draw ``shot`` and leave ``name``.png in ``folder``."""
    svg = svg_of(shot)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("screenshots/make.py needs chromium: install it, or name it in $CHROMIUM")
    width, height = (float(svg.split(f'{side}="')[1].split('"')[0]) for side in ("width", "height"))
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch) / "page.html"
        page.write_text(f'<body style="margin:0;background:transparent">{svg}</body>', encoding="utf-8")
        target = folder / f"{name}.png"
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={target}",
             "--default-background-color=00000000", "--force-device-scale-factor=1.5",
             f"--window-size={int(width + 0.5)},{int(height + 0.5)}", page.as_uri()],
            check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    return target


def main() -> None:
    """The named pictures, or all that are kept."""
    names = sys.argv[1:] or list(SHOTS)
    for name in names:
        kept = name in SHOTS
        folder = HERE if kept else Path(os.environ.get("SHOTS", tempfile.gettempdir()))
        print(save(name, SHOTS[name] if kept else MORE[name], folder))


if __name__ == "__main__":
    main()
