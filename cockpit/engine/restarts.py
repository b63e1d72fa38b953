"""Carries a hot restart out: prepares the next life, watches it take over, and tells the ledger. Called by ``engine``.

Everything that must happen without an engine is on the disk or with a keeper: the new process waits for the old one by
itself, and the way back is in its keeper's plan. Whatever engine comes next finds its way by these files alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cockpit.history.state import Entry
from cockpit.history.trials import is_restart
from cockpit.model.environment import OTHER_HASHES
from cockpit.model.errors import CockpitError
from cockpit.model.events import ChangeAsked, ChangeMoved
from cockpit.model.names import ENV_LIFE, ENV_WARM, ENV_WAS, START_FILE
from cockpit.probe import lives
from cockpit.probe.handoff.last_word import LANDED
from cockpit.probe.lives import LOG

from . import preload, processes
from .hear import Ears
from .launch import INJECT
from .life_files import changed_s, error_of, is_handed_over, last_line, prepared
from .likeness import likeness_of
from .next_argv import program_before, waiting_first
from .next_environ import theirs
from .next_life import BACK, environ_of, leave_s_of, start_keeper, start_of
from .record import Record
from .restart_plan import COLD_STEPS, Move, Standing, View, next_of, wanted, why_cold
from .restart_preview import other_hashes, preview
from .room import UNKNOWN, room_of, why_without_torch
from .rundir import RunDir, read_json, write_json


class Restarts:
    """``clock`` gives seconds since the epoch."""

    def __init__(self, run: RunDir, record: Record, ears: Ears, clock: Callable[[], float]) -> None:
        self._run = run
        self._record = record
        self._ears = ears
        self._clock = clock
        self._keepers: list[subprocess.Popen[bytes]] = []
        self._told: set[tuple[int, str]] = set()
        self._written: tuple[object, ...] | None = None
        self._lingered = ("", 0.0)
        self.carried: set[str] = set()
        """Restarts in the ledger that others see to, until their process has begun."""

    # ---- asked for ----

    def ask(self, env: Mapping[str, str | None], change: str, origin: str = "person") -> dict[str, Any]:
        """Prepare a process with this environment; raises a CockpitError with the reason why not."""
        state = self._record.state
        standing = self._standing()
        found = wanted(state, standing, env, str(INJECT))
        if (passed_over := preload.why_not(env, found.environ)) is not None:
            raise CockpitError(passed_over)
        self._record.happen(ChangeAsked(self._clock(), change, found.asked, origin=origin))
        try:
            self._begin(change, found.environ, found.asked, found.before)
        except OSError as error:
            self._moved(change, Move("refused", f"the new process could not be started: {error}"))
            raise CockpitError(f"the new process could not be started: {error}") from error
        hashes = OTHER_HASHES if other_hashes(standing.environ, env) else None
        notes = [note for note in (self._changed_since(), self._said("doubt"), hashes) if note]
        names = list((standing.session or {}).get("names") or ())
        return {"id": change, "note": "; ".join(notes) or None, "names": names}

    def preview(self, env: Mapping[str, str | None]) -> dict[str, Any]:
        """What asking would come to; nothing is begun."""
        return preview(self._record.state, self._standing(), env, str(INJECT))

    def call_off(self, reason: str | None = None) -> bool:
        """Give the restart up that waits for its turn; without a ``reason`` it is taken out of the ledger. False where
        it is handed over already. True, too, where there is none."""
        entry = self._pending()
        if entry is None:
            return True
        folder = self._folder_of(entry.id)
        if is_handed_over(folder, reason or "withdrawn"):
            return False
        self._end(entry.id, folder)
        self._moved(entry.id, Move("refused" if reason else "dropped", reason))
        return True

    def stopping(self) -> None:
        """The run is to end: nobody takes over any more, and who has just taken over does not go back either."""
        self.call_off("the run was stopped")
        if self._run.life != self._run.data:
            lives.mark(str(self._run.life), lives.STOP)

    # ---- under way ----

    def look(self) -> None:
        """Whatever has become known since the last look."""
        self._keepers = [keeper for keeper in self._keepers if keeper.poll() is None]
        entry = self._pending()
        if entry is None:
            return
        folder = self._folder_of(entry.id)
        action = next_of(entry, self._view(entry, folder))
        if isinstance(action, Move):
            if action.call_off:
                if is_handed_over(folder, action.reason or ""):
                    return  # meanwhile: seen at the next look
                self._end(entry.id, folder)
            self._moved(entry.id, action, read_json(Path(folder) / lives.PLAN).get("before") if folder else None)
        elif action is not None and folder is not None:
            self._tell(entry.id, folder)
        if folder is not None and not lives.has(folder, lives.GO):
            # a full disk: what was written before stands, and the next look tries again
            with contextlib.suppress(OSError):
                self._write_start(folder, entry.id)

    @property
    def under_way(self) -> bool:
        """Whether each message of the training may be news."""
        return self._pending() is not None

    def _pending(self) -> Entry | None:
        ledger = (entry for entry in reversed(self._record.state.ledger) if entry.id not in self.carried)
        return next((e for e in ledger if is_restart(e) and e.state in ("queued", "applying")), None)

    def _folder_of(self, change: str) -> str | None:
        for _, folder in lives.folders(str(self._run.data)):
            if lives.read(folder, lives.PLAN).get("change") == change:
                return folder
        return None

    def _view(self, entry: Entry, folder: str | None) -> View:
        if folder is None:
            return View()
        pids = processes.pids_in(Path(folder) / lives.PIDS)
        new = self._probe_of(pids.training if pids else None)
        said = self._ears.handoffs.get(entry.id) or {}
        failed = (
            str(said.get("reason") or "the training could not hand over") if said.get("state") == "failed" else None
        )
        ended, base = processes.exit_in(Path(folder) / lives.EXIT), lives.read(folder, lives.PLAN).get("goes_on_from")
        started = any(keeper.args[-1] == folder for keeper in self._keepers)  # type: ignore[index]
        return View(
            folder=True,
            keeper=processes.is_alive(pids.keeper, pids.keeper_started) if pids else started,
            ready=lives.read(folder, lives.READY),
            go=lives.read(folder, lives.GO),
            told=all((probe.order, entry.id) in self._told for probe in self._ears.members()),
            noted=entry.note is not None,
            failed=failed,
            status=ended[0] if ended else None,
            stepped_s=changed_s(os.path.join(folder, lives.STEPPED)),
            back=pids.back if pids else None,
            env=None if new is None else {name: theirs(name, text, str(INJECT)) for name, text in new.env.items()},
            base=None if base is None else str(base),
            words=last_line(os.path.join(folder, LOG)),
            held=str(said.get("what")) if said.get("state") == "held" else None,
            back_stepped=lives.has(os.path.join(folder, BACK), lives.STEPPED),
            error=error_of(folder),
            **self._lingering(folder),
        )

    def _lingering(self, folder: str) -> dict[str, Any]:
        """How long the process that has handed over was seen since then, and whether it is there still."""
        go, old = lives.read(folder, lives.GO), lives.read(folder, lives.PLAN).get("old") or {}
        if lives.HANDOFF not in go or not old.get("pid"):
            return {}
        there = processes.is_alive(int(old["pid"]), old.get("started_ticks"))
        if there:
            self._lingered = (folder, max(0.0, self._clock() - float(go.get("at_s") or self._clock())))
        return {"lingers": there, "lingered_s": self._lingered[1] if self._lingered[0] == folder else 0.0}

    def _probe_of(self, pid: int | None) -> Any:
        return next((probe for probe in self._ears.probes.values() if probe.pid == pid), None)

    def _tell(self, change: str, folder: str) -> None:
        for probe in self._ears.members():
            if (probe.order, change) not in self._told:
                self._told.add((probe.order, change))
                probe.send({"m": "handoff", "id": change, "life": folder})

    def _end(self, change: str, folder: str | None) -> None:
        """End the process that waits; the training forgets that it was to hand over."""
        self._ears.tell({"m": "handoff_drop", "id": change})
        pids = processes.pids_in(Path(folder) / lives.PIDS) if folder is not None else None
        if pids is not None:
            processes.send(self._run, pids.training, signal.SIGTERM, pids.training_started)

    def _moved(self, change: str, move: Move, before: Mapping[str, Any] | None = None) -> None:
        landing = move.state in ("settling", "rolled_back")
        self._record.happen(
            ChangeMoved(
                self._clock(),
                change,
                move.state,
                step=move.step,
                stall_ms=move.stall_ms,
                drain=COLD_STEPS if landing else 0,
                before=before if landing else None,
                in_force=move.in_force,
                reason=move.reason,
                note=move.note,
            )
        )

    # ---- the next life ----

    def _standing(self) -> Standing:
        lead, pids = self._ears.lead(), processes.read_pids(self._run)
        trains = lead if lead is not None and lead.trains else None
        return Standing(
            session=trains.session if trains else None,
            speaker=trains.pid if trains else None,
            started=pids.training if pids else None,
            program=processes.name_of(pids.training) if pids else "",
            set_early=self._set_early(),
            environ=environ_of(self._run, pids, self._record.state.environment or {}),
            room=room_of(self._run, pids.training) if pids else UNKNOWN,
        )

    def _said(self, name: str) -> Any:
        """What the training has told of itself beside what it hands over."""
        lead = self._ears.lead()
        return (lead.session or {}).get(name) if lead is not None else None

    def _set_early(self) -> tuple[str, ...]:
        """What the script sets before it imports torch. A process in which torch was there before the script cannot
        tell; what the one before it told stands in its plan."""
        lead, before = self._ears.lead(), read_json(self._run.life / lives.PLAN).get("set_early") or ()
        return tuple(sorted({*before, *(lead.set_early if lead else ())}))

    def _begin(
        self, change: str, environ: Mapping[str, str], asked: Mapping[str, Any], before: Mapping[str, Any]
    ) -> None:
        pids, facts = processes.read_pids(self._run), self._run.facts()
        assert pids is not None
        number = 2 + sum(1 for _ in lives.folders(str(self._run.data)))
        folder = self._run.data / f"life-{number}"
        old = {"pid": pids.training, "started_ticks": pids.training_started}
        output = str(self._run.output)
        early = self._set_early()
        known_of = {"change": change, "asked": dict(asked), "before": dict(before), "old": old, "output": output}
        facts_of = {**known_of, "leave_s": (leave_s := leave_s_of(facts))}
        lead = self._ears.lead()
        first = program_before(facts["argv"], lead.argv if lead else ())
        room = why_without_torch(room_of(self._run, pids.training))
        cold = [f"{first} runs first"] if first else [*why_cold(early), *room]
        found = (dict(lead.found) if lead else {}) or read_json(self._run.life / lives.PLAN).get("found")
        waits = {"cold": cold, "set_early": list(early), "found": found, "first": first}
        waits["script"] = self._said("script") or {}
        self._written = None
        with prepared(folder) as unnamed:
            (unnamed / BACK).mkdir(mode=0o700)
            write_json(unnamed / lives.PLAN, {**facts_of, **waits})
            self._write_start(str(unnamed), change)
        base = {"argv": facts["argv"], "cwd": facts["cwd"], "window": facts.get("window")}
        known = self._record.state.environment or {}
        was = {name: value for name, value in (environ_of(self._run, pids, known) or {}).items() if name != ENV_WARM}
        began = {name: value for name, value in environ.items() if name.startswith(ENV_WAS)}
        named = self._record.state.identity or {}  # who reports to a tracker goes on under its name
        plan = {
            **base,
            "argv": waiting_first(base["argv"]) if first else base["argv"],
            "env": {**named, **environ, ENV_LIFE: str(folder), ENV_WARM: str(folder)},
            "old": {**old, "leave_s": leave_s},
            "output": output,
            "log": str(folder / LOG),
            "like": likeness_of(pids.keeper),
            "back": {**base, "env": {**named, **was, ENV_LIFE: str(folder / BACK)}},
        }
        self._keepers.append(start_keeper(self._run, folder, json.dumps(plan).encode(), {**was, **began}))

    def _write_start(self, folder: str, change: str) -> None:
        """What the new process begins with: the settings in force now, renewed as they change until it takes over."""
        state = self._record.state
        known = (folder, state.ledger, state.loaders, state.kernels)
        if self._written is not None and all(a is b or a == b for a, b in zip(self._written, known, strict=True)):
            return
        start = start_of(state, read_json(self._run.start_file), self._run.facts())
        plan = lives.read(folder, lives.PLAN)
        names = [name.partition(" ")[2] for name in plan.get("asked", {}) if name.startswith("env ")]
        landed = [entry.id for entry in state.ledger if entry.landed_s is not None]
        write_json(Path(folder) / START_FILE, {**start, "change": change, "env": names, LANDED: landed})
        write_json(Path(folder) / BACK / START_FILE, {**start, "change": state.current.change})
        self._written = known

    def _changed_since(self) -> str | None:
        """A script that was edited runs as it is now: that is told, since nobody may mean it."""
        facts, script = self._run.facts(), self._record.state.script
        edited_s = changed_s(os.path.join(str(facts.get("cwd", "")), script))
        if edited_s is None or edited_s <= float(facts.get("started_s") or 0.0):
            return None
        return f"{script} was changed since the run began: the new process runs it as it is now"
