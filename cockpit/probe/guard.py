"""The one guard: everything the probe puts in place of a function of torch is made here.

A hook that fails switches itself off, is counted with its reason, and the original is called exactly once all
the same. Called by ``install``, ``roots`` and ``pulse``. The only broad ``except`` of the package stands in this
file; an exception that a signal handler of the script raised while we happened to run is the script's and passes.
"""

# ruff: noqa: BLE001  (the guard is the one place that catches everything)
from __future__ import annotations

import os
import signal
from types import CodeType, TracebackType
from typing import Any, Callable

UNSEEN = "<cockpit probe; named like importlib._bootstrap so that warnings blame the script's line, not ours>"
"""File name of replacements: ``warnings`` skips frames so named when it counts its stack level."""

_KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels") + os.sep


class Switch:
    """Whether one hook is on, and why it is not."""

    __slots__ = ("_failed", "name", "on", "reason")

    def __init__(self, name: str, failed: Callable[[str, str], None]) -> None:
        self.name = name
        self.on = True
        self.reason: str | None = None
        self._failed = failed

    def fail(self, error: Exception) -> None:
        """Off for good; raises ``error`` again where it is the script's own."""
        if _raised_by_signal_handler(error.__traceback__):
            raise error
        self.off("%s: %s" % (type(error).__name__, error))

    def off(self, reason: str) -> None:
        self.on = False
        self.reason = reason
        self._failed(self.name, reason)


class Guard:
    """Makes guarded replacements. ``reasons`` maps the hooks that are off to why."""

    def __init__(self, is_compiling: Callable[[], bool]) -> None:
        self._is_compiling = is_compiling
        self.reasons: dict[str, str] = {}
        self.failures = 0
        self.codes: list[CodeType] = []
        """Code of every replacement: what Dynamo must not mistake for the script's own."""
        self._switches: dict[str, Switch] = {}

    def _disguised(self, replacement: Any, original: Any, filename: str | None) -> Any:
        disguise(replacement, original, filename)
        self.codes.append(replacement.__code__)
        return replacement

    def switch(self, name: str) -> Switch:
        """The switch of that name, made at its first use; hooks that share a name fall together."""
        if name not in self._switches:
            self._switches[name] = Switch(name, self._failed)
        return self._switches[name]

    def _failed(self, name: str, reason: str) -> None:
        self.failures += 1
        self.reasons[name] = reason

    def run(self, name: str, work: Callable[..., Any], *args: Any) -> Any:
        """``work(*args)``, or None where it fails or has failed before."""
        switch = self.switch(name)
        if not switch.on:
            return None
        try:
            return work(*args)
        except Exception as error:
            switch.fail(error)
            return None

    def around(
        self, name: str, original: Any, enter: Callable[..., Any], leave: Callable[..., None], frames: int = 1
    ) -> Any:
        """``original`` with ``enter(*args)`` before and ``leave(token, result, error)`` after it.

        ``enter`` may return None: then there is nothing to leave. ``frames`` of ours, this one and those that
        ``original`` begins with, are left out of the script's tracebacks.
        """
        is_compiling, switch = self._is_compiling, self.switch(name)

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not switch.on:
                return original(*args, **kwargs)
            token = None
            try:
                token = enter(*args)
            except Exception as error:
                switch.fail(error)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                unseen(error, frames)
                try:
                    if token is not None:
                        leave(token, None, error)
                except Exception as failure:
                    switch.fail(failure)
                raise
            try:
                if token is not None:
                    leave(token, result, None)
            except Exception as error:
                switch.fail(error)
            return result

        return self._disguised(replacement, original, UNSEEN)

    def timed(
        self, name: str, original: Any, phase: str, recorder: Any, leave: Callable[..., None], frames: int = 1,
        on_trial: Any = None,
    ) -> Any:  # fmt: skip
        """``original`` timed as ``phase`` in the training's thread; then ``leave(began_ns, charged_ns)``.

        ``charged_ns`` is what had been charged to phases at the beginning, so that nothing counts twice.
        Other threads pass straight through. Written out flat: each call it saves is saved every step.
        ``on_trial`` stands in for ``original`` while somebody looks at each call, and is one frame more.
        """
        is_compiling, switch = self._is_compiling, self.switch(name)
        clock, ident = recorder.clock, recorder.ident

        def replacement(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not switch.on:
                return original(*args, **kwargs)
            if recorder.thread != ident() and recorder.thread is not None:
                recorder.strays += phase == "backward"
                return original(*args, **kwargs)
            was, charged = recorder.doing, recorder.charged
            recorder.doing = phase
            began = recorder.since = clock()
            idle = on_trial is None or (recorder.trial is None and recorder.on_backward is None)
            work = original if idle else on_trial
            try:
                return work(*args, **kwargs)
            except BaseException as error:
                unseen(error, frames + (work is not original))
                raise
            finally:
                recorder.doing = was
                try:
                    leave(began, charged)
                except Exception as error:
                    switch.fail(error)

        return self._disguised(replacement, original, None)


def attempt(work: Callable[..., Any], *args: Any) -> tuple[Any, Exception | None]:
    """(what ``work`` gives, None), or (None, why not): for what runs code of the script's, and may be tried again."""
    try:
        return work(*args), None
    except Exception as error:
        if _raised_by_signal_handler(error.__traceback__):
            raise
        return None, error


def unseen(error: BaseException, frames: int) -> None:
    """Leaves our own frames out of a traceback that the script's user may see; those of a knob in force, too."""
    traceback = error.__traceback__
    for _ in range(frames):
        traceback = traceback.tb_next if traceback is not None else None
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_KERNELS):
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def disguise(replacement: Any, original: Any, filename: str | None) -> None:
    """Gives ``replacement`` the name, docs and signature of ``original``; frames show ``filename``."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        if hasattr(original, name):
            setattr(replacement, name, getattr(original, name))
    replacement.__wrapped__ = getattr(original, "__wrapped__", original)
    code: CodeType = replacement.__code__
    replacement.__code__ = code.replace(co_name=original.__name__, co_filename=filename or code.co_filename)


def code_of(handler: Any) -> CodeType | None:
    """A signal handler's code, be it a function, a method, a partial or an object; None for what is written in C."""
    handler = getattr(handler, "func", handler)
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler), "__dict__", {}).get("__call__")
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _raised_by_signal_handler(traceback: TracebackType | None) -> bool:
    handlers = set()
    for number in signal.valid_signals():
        handlers.add(code_of(signal.getsignal(number)))
    handlers.discard(None)
    while traceback is not None:
        if traceback.tb_frame.f_code in handlers:
            return True
        traceback = traceback.tb_next
    return False
