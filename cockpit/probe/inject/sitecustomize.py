# mypy: ignore-errors
# ruff: noqa  (Python 2.7 has to parse it, and nothing catches for it)
# Runs at the start of every Python process of a run (this folder is first in PYTHONPATH), so it must stay silent
# and cheap on any interpreter: the syntax is one that Python 2.7 parses, below 3.9 it only hands on to the
# sitecustomize that it hides. It waits for torch and then loads the probe from $COCKPIT_PACKAGE under a private
# name; a process that never imports torch pays for small objects in sys.meta_path. Nothing else may lie here.
import os
import sys


def _watched(watcher, name, path, target, before, after):
    """What the other finders find, its loader told to call these as it runs the module: each once, and nobody later."""
    for finder in sys.meta_path:
        look = getattr(finder, "find_spec", None)
        spec = look(name, path, target) if finder is not watcher and look else None
        if spec is not None:
            break
    else:
        return None
    loader = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is not None:

        def exec_module(module):
            loader.__dict__.pop("exec_module", None)
            if before is not None:
                before()
            execute(module)
            after()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass
    return spec


class _TorchWaiter(object):
    """A finder that finds nothing: it only notices that torch is being imported, and leaves when it has been."""

    standing = None  # how the process stands in that moment, as the kernel tells it: torch reads some of it

    def note(self):
        self.standing = {}
        try:
            self.standing["dlopen"] = str(sys.getdlopenflags()).encode()
            for name in ("status", "limits", "stat", "maps"):
                with open("/proc/self/" + name, "rb") as lines:
                    self.standing[name] = lines.read()
        except Exception:
            pass

    def find_spec(self, name, path=None, target=None):
        if name[:5] != "torch":
            return None
        if name == "torch":
            # only a real import: a mere question (importlib.util.find_spec) gets its answer from the others
            if sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
                return _watched(self, name, path, target, self.note, self._ready)
        elif name[5:6] == "." and not self._busy():
            self._ready()
        return None

    def _busy(self):
        spec = getattr(sys.modules.get("torch"), "__spec__", None)
        return spec is None or getattr(spec, "_initializing", False)

    def _ready(self):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _load(sys.modules["torch"], self.standing)


class _Beginning(object):
    """A finder that finds nothing: it notes how each generator that is seeded by chance stands once it is imported.

    What a script draws before its loop, unseeded, must be drawn again where a later process of the run goes on: there
    they are put as the first process found them, ``told`` by its hand-off.
    """

    calls = {"random": ("getstate", "setstate"), "numpy.random": ("get_state", "set_state")}
    makers = {"random": "random", "numpy.random": "numpy.random.mtrand"}

    def __init__(self, told):
        self.told, self.noted = told, {}
        for name in self.calls:
            if name in sys.modules:
                self._note(name)

    def find_spec(self, name, path=None, target=None):
        if name not in self.calls:
            return None
        return _watched(self, name, path, target, None, lambda: self._note(name))

    def _own_calls(self, module, name):
        """Those of Python and NumPy themselves, and nothing else: the script may have a random.py of its own, of which
        no code is to run before its time. Raises where they are not."""
        fields = vars(module) if type(module) is type(sys) else {}
        if name == "random" and os.path.dirname(fields["__file__"]) != os.path.dirname(os.__file__):
            raise LookupError(name)
        found = tuple(fields[call] for call in self.calls[name])
        if any(type(call.__self__).__module__ != self.makers[name] for call in found):
            raise LookupError(name)
        return found

    def _note(self, name):
        try:
            get, put = self._own_calls(sys.modules.get(name), name)
            if name in self.told:
                put(self.told[name])
            self.noted[name] = get()
        except Exception:
            pass
        if self in sys.meta_path and len(self.noted) == len(self.calls):
            sys.meta_path.remove(self)


def _began():
    """What the first process of the run has told of its beginning. Only for the one that a later keeper has started: two
    helpers of a script must not draw the same."""
    life = os.environ.get("COCKPIT_LIFE")
    try:
        if life:
            with open("/proc/%d/cmdline" % os.getppid(), "rb") as words:
                folder = words.read().rstrip(b"\0").rpartition(b"\0")[2]
            if os.fsencode(life) in (folder, os.path.join(folder, b"back")):
                with open(os.path.join(os.environ["COCKPIT_RUN"], "handoff", "began")) as file:
                    import ast

                    return ast.literal_eval(file.read())
    except Exception:
        pass
    return {}


def _ours(module):
    name, folder = "_training_cockpit", os.environ.get("COCKPIT_PACKAGE")
    import importlib.util

    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        package = importlib.util.module_from_spec(spec)
        sys.modules[name] = package
        spec.loader.exec_module(package)
    return importlib.import_module(name + ".probe." + module)


def _load(torch, standing=None):
    try:
        _ours("install").install(torch, standing)
    except Exception:
        # the probe's own guard is not loaded yet: the training goes on bare, and the screen says why
        _leave_word(sys.exc_info()[1])


class _Provider(object):
    """Last in sys.meta_path: gives "import cockpit" to a script whose environment has no cockpit of its own."""

    def find_spec(self, name, path=None, target=None):
        if name != "cockpit":
            return None
        import importlib.util

        folder = os.environ.get("COCKPIT_PACKAGE", "")
        init = os.path.join(folder, "__init__.py")
        if not os.path.isfile(init):
            return None
        return importlib.util.spec_from_file_location(name, init, submodule_search_locations=[folder])


def _leave_word(error):
    """Why there is no probe, for the engine; the first process that fails says it for all."""
    try:
        path = os.path.join(os.environ["COCKPIT_RUN"], "probe_error")
        words = "%s: %s (torch %s, Python %s)" % (
            type(error).__name__, error, getattr(sys.modules.get("torch"), "__version__", "?"), sys.version.split()[0],
        )  # fmt: skip
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(handle, " ".join(words.split())[:1000].encode("utf-8", "replace"))
        os.close(handle)
    except Exception:
        pass


def _wait_for_our_turn(waiter):
    # the new process of a hot restart waits here, with torch imported; the old one trains on if anything goes wrong
    ready = False
    try:
        _ours("warm").wait(os.environ.pop("COCKPIT_WARM"), waiter)
        ready = True
    finally:
        if not ready:
            os._exit(70)


def _next_sitecustomize():
    here, passed = os.path.dirname(os.path.abspath(__file__)), False
    for folder in sys.path:
        if os.path.abspath(folder) == here:
            passed = True
        elif passed:
            for name in ("sitecustomize.py", os.path.join("sitecustomize", "__init__.py")):
                path = os.path.join(folder, name)
                if os.path.isfile(path):
                    return path
    return None


if os.environ.get("COCKPIT_RUN") and sys.version_info >= (3, 9):
    _waiter = _TorchWaiter()
    if "torch" in sys.modules:
        _load(sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _waiter)
    sys.meta_path.append(_Provider())
    _beginning = _Beginning(_began())
    sys.meta_path.insert(0, _beginning)

_waits = os.environ.get("COCKPIT_WARM") and os.environ.get("COCKPIT_RUN") and sys.version_info >= (3, 9)
_path = _next_sitecustomize()
try:
    if _path:
        __file__ = _path
        with open(_path, "rb") as _file:
            _code = compile(_file.read(), _path, "exec")
        # names of its own: it may take away, or call by another meaning, what we go on using
        _kept = ("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtins__", "__file__")
        _names = {_name: globals()[_name] for _name in _kept if _name in globals()}
        try:
            exec(_code, _names)
        finally:
            globals().update({_name: _value for _name, _value in _names.items() if _name not in globals()})
finally:
    if _waits:  # also where that file fails, as a Python that begins outlives it: two must never train at once
        _wait_for_our_turn(_waiter)
