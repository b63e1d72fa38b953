"""The training that ``cockpit demo`` shows: which shape is on the picture? An everyday PyTorch script.

It learns from real JPEG files (made on first use), decoded and augmented with Pillow, one model thread and a
DataLoader without workers, as one first writes it. A part of each read is the latency of a *simulated file store*.
It has never heard of the cockpit: ``python train.py`` trains without it.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

try:
    from pictures import PER_CLASS, SHAPES, VERSION, default_folder, list_pictures, make_pictures
    from PIL import Image
except ModuleNotFoundError as missing:
    if missing.name != "PIL":
        raise
    sys.exit("The demo decodes real pictures and needs Pillow for that: pip install 'training-cockpit[demo]'")

CLASSES = list(SHAPES)
CROP = 64


class Shapes(Dataset[tuple[Tensor, int]]):
    """The pictures of one folder: read (from a file store that takes its time), decoded, cropped, flipped."""

    def __init__(self, folder: Path, store_ms: float, per_class: int = PER_CLASS) -> None:
        self.items = [
            (folder / VERSION / name / f"{number:03}.jpg", CLASSES.index(name))
            for name, number in list_pictures(per_class)
        ]
        self.store_ms = store_ms

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.items[index]
        time.sleep(self.store_ms / 1000)  # simulated file store: what a read over the network would take
        with Image.open(path) as file:
            picture = augment(file.convert("RGB"))
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return pixels.view(CROP, CROP, 3).permute(2, 0, 1).float().div_(255).sub_(0.5), label


def augment(picture: Image.Image) -> Image.Image:
    """A random turn, a random crop scaled to the net's size, and a random flip."""
    picture = picture.rotate(random.uniform(-20, 20), Image.Resampling.BILINEAR)
    side = random.uniform(0.85, 1.0) * picture.width
    left, top = random.uniform(0, picture.width - side), random.uniform(0, picture.height - side)
    box = (left, top, left + side, top + side)
    picture = picture.resize((CROP, CROP), Image.Resampling.BILINEAR, box=box)
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else picture


def make_net() -> nn.Module:
    """A small convolutional net."""

    def layer(channels_in: int, channels_out: int, stride: int = 1) -> list[nn.Module]:
        conv = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(channels_out), nn.ReLU()]

    half = nn.MaxPool2d(2)
    return nn.Sequential(
        *layer(3, 16, stride=2), *layer(16, 24), half, *layer(24, 48), half, *layer(48, 64), half,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(CLASSES)),
    )  # fmt: skip


def train_epoch(
    loader: DataLoader[tuple[Tensor, Tensor]], net: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[float, float]:
    """One pass over the pictures: (mean loss, share of right answers)."""
    loss_sum, right, seen = 0.0, 0, 0
    for pictures, labels in loader:
        answers = net(pictures)
        loss = nn.functional.cross_entropy(answers, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(labels)
        right += int((answers.argmax(1) == labels).sum())
        seen += len(labels)
    return loss_sum / seen, right / seen


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn which shape is on a picture.")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--store-ms", type=float, default=6.0, help="latency of the simulated file store a read")
    parser.add_argument("--data", type=Path, default=default_folder(), help="where the pictures are kept")
    args = parser.parse_args()

    try:
        made = make_pictures(args.data)
    except OSError as error:
        sys.exit(f"cannot make the demo's pictures in {args.data} ({error}): name another folder with --data")
    torch.manual_seed(0)
    random.seed(0)
    torch.set_num_threads(1)
    dataset = Shapes(args.data, args.store_ms)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=0)
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    print(f"{len(dataset)} pictures of {len(CLASSES)} shapes in {args.data} ({made} made now)")
    print(f"simulated file store: {args.store_ms:g} ms per read", flush=True)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        loss, accuracy = train_epoch(loader, net, optimizer)
        print(
            f"epoch {epoch:3}   loss {loss:.3f}   accuracy {accuracy:4.0%}   {time.perf_counter() - start:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
