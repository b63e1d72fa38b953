"""The demo's pictures: a few hundred JPEG files of coloured shapes, one folder for each class, made on first use.

Made from a fixed seed, so that everybody trains on the same pictures; each file appears whole or not at all, so that
an interrupted first use goes on where it was. Plain Python and Pillow: the training that uses it knows no cockpit.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image, ImageDraw

VERSION = "shapes-1"
"""Names the folder; to be raised when the pictures change, so that old and new ones are never mixed."""
SIZE = 160
"""Width and height of a picture in pixels."""
PER_CLASS = 96
FINE = 2
"""Shapes are drawn so many times larger and scaled down, for smooth edges."""
DARK, BRIGHT = (0, 130), (125, 255)

Points = list[tuple[float, float]]


def default_folder() -> Path:
    """``$XDG_CACHE_HOME/cockpit-demo`` or ``~/.cache/cockpit-demo``."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    # a relative path there is to be ignored, says the XDG specification
    cache = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    return cache / "cockpit-demo"


def make_pictures(folder: Path, per_class: int = PER_CLASS) -> int:
    """Make those of ``folder/VERSION/<class>/<number>.jpg`` that are missing; returns how many it made.

    Raises OSError where the folder cannot be written. Two processes may do it at the same time.
    """
    made = 0
    for name, number in list_pictures(per_class):
        path = folder / VERSION / name / f"{number:03}.jpg"
        if path.is_file() and path.stat().st_size > 0:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draw_picture(name, number).save(unfinished, format="JPEG", quality=90)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)
        made += 1
    return made


def list_pictures(per_class: int = PER_CLASS) -> Iterator[tuple[str, int]]:
    """Class and number of each picture, in the order they are made."""
    return ((name, number) for number in range(per_class) for name in SHAPES)


def draw_picture(name: str, number: int) -> Image.Image:
    """One bright shape at a random place, size, angle and colour on a dark blotchy ground, with specks over both."""
    rng = random.Random(f"{VERSION} {name} {number}")
    picture = draw_ground(rng, DARK)
    side = SIZE * FINE
    mask = Image.new("L", (side, side), 0)
    radius = side * rng.uniform(0.16, 0.32)
    centre = (rng.uniform(radius, side - radius), rng.uniform(radius, side - radius))
    SHAPES[name](ImageDraw.Draw(mask), centre, radius, rng.uniform(0, 2 * math.pi))
    mask = mask.resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    picture.paste(draw_ground(rng, BRIGHT), mask=mask)
    specks = ImageDraw.Draw(picture)
    for _ in range(60):
        x, y, r = rng.uniform(0, SIZE), rng.uniform(0, SIZE), rng.uniform(0.5, 2.5)
        specks.ellipse((x - r, y - r, x + r, y + r), fill=pick_colour(rng, rng.choice((DARK, BRIGHT))))
    return picture


def draw_ground(rng: random.Random, light: tuple[int, int], blotches: int = 6) -> Image.Image:
    """Smooth colours round one base colour: a tiny random picture, enlarged."""
    base = pick_colour(rng, light)
    tiny = bytes(max(0, min(255, base[at % 3] + rng.randint(-25, 25))) for at in range(blotches * blotches * 3))
    ground = Image.frombytes("RGB", (blotches, blotches), tiny)
    return ground.resize((SIZE, SIZE), Image.Resampling.BICUBIC)


def pick_colour(rng: random.Random, light: tuple[int, int]) -> tuple[int, int, int]:
    """A colour each of whose three parts lies between the two of ``light`` (0..255)."""
    return rng.randint(*light), rng.randint(*light), rng.randint(*light)


# ---- the shapes: each draws itself white on black ----

Shape = Callable[[ImageDraw.ImageDraw, tuple[float, float], float, float], None]


def corners(centre: tuple[float, float], radii: list[float], angle: float) -> Points:
    """Corners all round the centre, at the radii's distances."""
    step = 2 * math.pi / len(radii)
    return [
        (centre[0] + radius * math.cos(angle + at * step), centre[1] + radius * math.sin(angle + at * step))
        for at, radius in enumerate(radii)
    ]


def polygon(radii: list[float]) -> Shape:
    def draw(mask: ImageDraw.ImageDraw, centre: tuple[float, float], radius: float, angle: float) -> None:
        mask.polygon(corners(centre, [radius * part for part in radii], angle), fill=255)

    return draw


def disc(hole: float = 0.0, aside: float = 0.0) -> Shape:
    """A disc; with a hole a ring, with the hole aside a crescent."""

    def draw(mask: ImageDraw.ImageDraw, centre: tuple[float, float], radius: float, angle: float) -> None:
        x, y = centre
        mask.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
        x, y, radius = (
            x + radius * aside * math.cos(angle),
            y + radius * aside * math.sin(angle),
            radius * hole,
        )
        if hole:
            mask.ellipse((x - radius, y - radius, x + radius, y + radius), fill=0)

    return draw


def cross(mask: ImageDraw.ImageDraw, centre: tuple[float, float], radius: float, angle: float) -> None:
    for turn in (0, math.pi / 2):
        ends = corners(centre, [radius, radius], angle + turn)
        mask.line(ends, fill=255, width=int(radius * 0.55))


SHAPES: dict[str, Shape] = {
    "crescent": disc(hole=0.85, aside=0.5),
    "cross": cross,
    "disc": disc(),
    "hexagon": polygon([1.0] * 6),
    "ring": disc(hole=0.55),
    "square": polygon([1.0] * 4),
    "star": polygon([1.0, 0.42] * 5),
    "triangle": polygon([1.0] * 3),
}
