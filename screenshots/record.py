"""Records the demo that the README's pictures show: ``python screenshots/record.py``, on a quiet machine.

A real run of ``cockpit demo`` whose workers are turned up twice. Its journal and the end of its output are kept as they
are, except that the names of this machine's folders are taken out. ``make.py`` draws its end.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "demo" / "journal-000001.jsonl.gz"
SCHEDULE = ("--at", "time:45", "num_workers=2", "--at", "time:85", "num_workers=4")
SECONDS = 128
OUTPUT_LINES = 60


def main() -> None:
    """Run, wait, stop, keep the events."""
    sys.path.insert(0, str(HERE.parent))
    from cockpit.history.journal import read_events
    from cockpit.wire.codec import event_to_plain

    with tempfile.TemporaryDirectory() as folder:
        cockpit = [sys.executable, "-m", "cockpit.cli.main"]
        place = ("--state-dir", folder)
        env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        demo = subprocess.Popen([*cockpit, "demo", "--headless", "--name", "demo", *place, *SCHEDULE], env=env)
        try:
            demo.wait(SECONDS)
        except subprocess.TimeoutExpired:
            # the picture shows a run that goes on: what is kept ends here, before the stop
            events = list(read_events(Path(folder) / "runs" / "demo"))
            output = (Path(folder) / "runs" / "demo" / "output.log").read_bytes()
        else:
            sys.exit("the demo ended before it could be recorded")
        finally:
            subprocess.run([*cockpit, "stop", "demo", "--force", *place], env=env, check=False)
            demo.wait(60)
    lines = [json.dumps(event_to_plain(event), separators=(",", ":"), ensure_ascii=False) for event in events]
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_bytes(gzip.compress(neutral("\n".join(lines), folder).encode(), mtime=0))
    newest = output.decode("utf-8", "replace").splitlines(keepends=True)[-OUTPUT_LINES:]
    (KEPT.parent / "output.log").write_text(neutral("".join(newest), folder), encoding="utf-8")
    print(f"{KEPT}: {len(events)} events, {KEPT.stat().st_size // 1000} kB")


def neutral(text: str, folder: str) -> str:
    """``text`` without the names of this machine's folders."""
    for own, instead in ((str(HERE.parent), "."), (sys.executable, "python"), (str(Path.home()), "~"), (folder, "~")):
        text = text.replace(own, instead)
    return text


if __name__ == "__main__":
    main()
