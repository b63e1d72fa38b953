"""All kernel knobs of one training: plans and lands them on every root at once, and reports what is really in force.

Made by the probe; ``adopt`` when a root gets its slot, ``plan`` and ``land`` in the training's thread between two
steps, ``reports`` there too. It must never say that something is in force which no call has shown yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ...model.knobs import NO_EFFECT, SCRIPT, Value
from ...model.ranks import NOT_YET
from ..groups import Refused
from ..row import Row
from . import autocast as casts
from . import compiling, emulated
from .root import RANDOM, RootKernels
from .setters import Setter, matmul, threads
from .setting import RolledBack, Setting
from .twice import Twice

ROOT_KNOBS = ("autocast", "compile")
SETTER_KNOBS = ("matmul", "threads")
NO_ROOT = "no module was seen called: the script compiles the whole step itself, or has not ended its first step"
FITS = 0.9
"""Of the memory that is there, so much may be planned for: allocators lose some between their blocks."""
BYPASSED = "this region is compiled by the script: nothing outside reaches what runs in it"
IN_TRAINING = "where gradients are off (evaluation) it stays as the script has it"
OWN_COMPILE = "compiled by the script itself"


class Kernels:
    """``world()`` is the number of ranks; ``run`` is the guard's. ``bypassed`` is asked whether the roots' slots have
    stopped being called."""

    def __init__(
        self, torch: Any, clock: Callable[[], int], ident: Callable[[], int], world: Callable[[], int] = lambda: 1,
        run: Callable[..., Any] = lambda name, work, *args: work(*args),
    ) -> None:  # fmt: skip
        self.torch = torch
        self.world = world
        self._run = run
        self.batch_norm = False
        """Whether a root has a batch norm, which a batch of one sample breaks."""
        self._roots: list[RootKernels] = []
        self._setting = Setting()
        """What is asked of every root, also while none lives: the model of the next fold gets it too."""
        self.bypassed: Callable[[], bool] = lambda: False
        self.places = casts.Places(torch)
        self.watch = compiling.CompileWatch(clock, ident)
        self.twice = Twice(torch)
        self.setters: dict[str, Setter] = {
            "matmul": matmul(torch, lambda: self.roots[0].device if self.roots else ""),
            "threads": threads(torch),
        }

    @property
    def roots(self) -> list[RootKernels]:
        """Those whose module still lives."""
        self._roots = [root for root in self._roots if root.alive]
        return self._roots

    def adopt(self, module: Any, previous: Any) -> RootKernels:
        """A root has been found; ``previous`` is what the script had in its slot."""
        norm = self.torch.nn.modules.batchnorm._BatchNorm
        self.batch_norm = self.batch_norm or any(isinstance(part, norm) for part in module.modules())
        root = RootKernels(self.torch, module, previous, self.places, self.watch, self.twice, self._run)
        root.set(**self._setting._asdict())
        self._roots.append(root)
        self._place()
        return root

    # ---- asking ----

    def plan(self, asked: Mapping[str, Value]) -> None:
        """Raises Refused where one of ``asked`` cannot be had; changes nothing."""
        wanted = [name for name, value in asked.items() if value != SCRIPT]
        if wanted and self.world() > 1:
            raise Refused("%s: %s" % (", ".join(wanted), NOT_YET))
        for name, value in asked.items():
            if name in self.setters:
                self.setters[name].value_of(value)
                continue
            reason = self._unreachable()
            if reason is not None and value != SCRIPT:
                raise Refused(reason)
            for root in self.roots:
                root.plan(name, value)

    def _unreachable(self) -> str | None:
        if not self.roots:
            return NO_ROOT
        return BYPASSED if self.bypassed() else None

    def stands(self, asked: Mapping[str, Value]) -> bool:
        """Whether all of ``asked`` is what was asked for before: landing it once more would change nothing."""
        setting = self._setting._asdict()
        return all(
            self.setters[name].stands(value) if name in self.setters else setting[name] == str(value)
            for name, value in asked.items()
        )

    def land(self, asked: Mapping[str, Value]) -> dict[str, Value | None]:
        """In force for what runs from here on; the values before. Raises Refused, and then nothing has changed."""
        self.plan(asked)
        before: dict[str, Value | None] = {row.name: row.in_force for row in self.reports() if row.name in asked}
        for root in self.roots[:1]:
            # where nothing was asked for yet, undo leads back to the script's own, whatever that is
            before.update({name: SCRIPT for name in root.untouched if name in asked})
        for name, value in asked.items():
            if name in self.setters:
                self.setters[name].set(value)
        words = {name: str(value) for name, value in asked.items() if name in ROOT_KNOBS}
        if words:
            for root in self.roots:
                root.set(**words)
            self._setting = self._setting._replace(**words)
            self._place()
        return before

    def _place(self) -> None:
        wanted: dict[str, str | None] = {}
        for root in self.roots:
            word = root.setting.autocast
            wanted[root.device] = None if word == SCRIPT else word
        for device, asked in wanted.items():
            self.places.want(device, asked)

    def take_notices(self) -> list[RolledBack]:
        """Settings that a call could not run under. What one root gave up, the others give up with it."""
        found: list[RolledBack] = []
        for root in self.roots:
            while root.notices:
                found.append(root.notices.popleft())
        if found:
            back = self._setting = found[-1].setting
            for root in self.roots:
                root.set(autocast=back.autocast, compile=back.compile)
            self._place()
        return found

    def mind_calls(self, on_call: Callable[[], None] | None) -> None:
        """``on_call`` before each forward of a root from now on; None: no more."""
        for root in self.roots:
            root.on_call = on_call
            root.mind()

    def mind_results(self, on_result: Callable[[Any, Any, Any, Any], None] | None) -> None:
        """``on_result`` after each forward of a root in the training; None: no more."""
        for root in self.roots:
            root.on_result = on_result
            root.mind()

    def compiled_nothing(self, asked: Mapping[str, Value]) -> str | None:
        """Why a change that asks to compile is not what runs: torch has made no graph of anything it was called for."""
        if asked.get("compile", SCRIPT) in (SCRIPT, compiling.OFF):
            return None
        called = [root for root in self.roots if root.calls]
        if not called or any(root.compiles for root in called):
            return None
        return "torch compiled nothing and went on in eager mode (%s)" % compiling.why_nothing()

    def modules(self) -> list[Any]:
        """The trained modules that are still there."""
        return [module for root in self.roots if (module := root.module) is not None]

    def too_large(self, size: int, largest: int | None) -> str | None:
        """Why batches of ``size`` will not fit into a GPU that has carried ``largest``, or None. Asks the driver."""
        cuda = self.torch.cuda
        if not largest or size <= largest or not any(root.device == "cuda" for root in self.roots):
            return None
        held, peak = cuda.memory_allocated(), cuda.max_memory_allocated()
        needed = held + max(0, peak - held) * size / largest
        there = cuda.memory_reserved() + cuda.mem_get_info()[0]
        if needed <= FITS * there:
            return None
        gib = 1024.0**3
        return "batches of %d would need about %.1f GiB of GPU memory, and there are %.1f" % (
            size, needed / gib, there / gib,
        )  # fmt: skip

    # ---- what is found ----

    def no_effect(self, asked: Iterable[str]) -> str | None:
        """Why nothing is computed otherwise under any value of all these; None where something may be."""
        notes = [self.setters[name].limit().note or "" if name in self.setters else "" for name in asked]
        return notes[0] if notes and all(note.startswith(NO_EFFECT) for note in notes) else None

    def reports(self) -> list[Row]:
        """One row a knob. Call it in the training's thread."""
        rows = [self._autocast(), self._compile(), *(self._setter(s) for s in self.setters.values())]
        if self.world() > 1:
            rows = [row._replace(can=False, can_now=False, reason=NOT_YET) for row in rows]
        return rows

    def _setter(self, setter: Setter) -> Row:
        limit, value = setter.limit(), setter.read()
        note = "the script has set it again" if setter.overruled else limit.note
        script = setter.script if setter.script is not None else value
        return Row(setter.name, script, value, limit.can, limit.can_now, limit.reason, note)

    def _autocast(self) -> Row:
        roots = self.roots
        script = _one(root.own_autocast for root in roots)
        if all(root.setting.autocast == SCRIPT for root in roots):
            in_force = script
        else:
            in_force = _one(root.seen for root in roots if root.calls)
        asked = roots[0].setting.autocast if roots else SCRIPT
        reason, partly = self._unreachable(), next((root.partly for root in roots if root.partly), None)
        if asked in (SCRIPT, casts.OFF):
            reason = reason or next((root.no_effect for root in roots if root.no_effect), None)
        note = "outputs partly %s: %s is handed on as it is" % (in_force or asked, partly) if partly else None
        if note is None and asked != SCRIPT and in_force not in (None, asked):
            note = "the script decides: its own region keeps %s" % in_force
        notes = [note]
        if reason is None and roots:
            notes = [note or emulated.words_of(self.torch, roots[0].device, asked), self.caught(), IN_TRAINING]
        note = "; ".join(filter(None, notes)) or None
        return Row("autocast", script, in_force, reason is None, reason is None, reason, note)

    def caught(self) -> str | None:
        """Whose hooks would get tensors of lower precision."""
        return next((root.caught for root in self.roots if root.caught), None)

    def look_for_hooks(self) -> None:
        """Those that the script has set or removed since. Goes through all modules: ask seldom."""
        for root in self.roots:
            root.look_for_hooks()

    def _compile(self) -> Row:
        roots = self.roots
        script: Value | None = _one("on" if root.compiled_by_script else compiling.OFF for root in roots)
        asked = roots[0].setting.compile if roots else SCRIPT
        reason = self._unreachable()
        if reason is None:
            reasons = (compiling.missing_compiler(root.device) or root.cannot_compile for root in roots)
            reason = next(filter(None, reasons), None)
        notes = [OWN_COMPILE] if script == "on" else []
        notes.append(RANDOM)
        again = sum(root.recompiles for root in roots)
        if again:
            often = "once" if again == 1 else "%d times" % again
            notes.append("recompiled %s (torch's limit is %d)" % (often, compiling.recompile_limit()))
        shown = script if asked == SCRIPT else asked if any(root.calls for root in roots) else None
        late = next((root.late_hooks.words for root in roots if root.late_hooks.words), None)
        if late is not None and asked not in (SCRIPT, compiling.OFF):
            notes.insert(0, late)
            shown = compiling.OFF
        return Row("compile", script, shown, reason is None, reason is None, reason, "; ".join(notes) or None)


def _one(values: Iterable[Any]) -> Any:
    """What all of them are, or None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
