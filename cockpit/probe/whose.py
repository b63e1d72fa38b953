"""Whose something is: the script's own, or torch's, Python's, the cockpit's, an installed package's.

Asked by whoever looks at what a script has made. It goes by names of modules alone and runs nothing.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

STANDARD = "_io _thread _weakref abc collections functools itertools io logging os pathlib random re threading types"
NOT_SCRIPTS = frozenset(
    (
        "torch",
        "numpy",
        "builtins",
        "cockpit",
        "_training_cockpit",
        *getattr(sys, "stdlib_module_names", STANDARD.split()),
    )
)
"""Whose classes are not looked into: what they hold, their instances show."""
TRAININGS = (
    "lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "ignite", "transformers.trainer",
    "torch.utils.tensorboard", "torch.utils.data.dataloader", "torch.optim", "tensorboardX", "tensorboard", "wandb",
    "mlflow", "comet_ml", "neptune", "tqdm",
)  # fmt: skip
"""What runs a training and tells of it: no sample is made of that."""
FEEDING = ("torch.utils.data.dataloader", "torch.optim.optimizer")
_STDLIB = os.path.dirname(os.__file__) + os.sep

MRO, MODULE, NAME = (type.__dict__[name].__get__ for name in ("__mro__", "__module__", "__name__"))
"""Of a class, whatever its metaclass says."""


def module_of(kind: type) -> str:
    """The name of the module that ``kind`` was made in."""
    try:
        name = MODULE(kind)
    except AttributeError:  # a class made by hand may have none
        return ""
    return name if type(name) is str else ""


def package_of(kind: type) -> str:
    """The first part of that name."""
    return module_of(kind).split(".", 1)[0]


@functools.lru_cache(maxsize=2048)
def is_scripts(module: str) -> bool:
    """Whether what stands in ``module`` was written for this training."""
    if module.split(".", 1)[0] in NOT_SCRIPTS:
        return False
    main = getattr(sys.modules.get("__main__"), "__package__", None)
    if main and module.split(".", 1)[0] == main.split(".", 1)[0]:
        return True  # python -m package.train, installed or not
    file = getattr(sys.modules.get(module), "__file__", None)
    return not (type(file) is str and is_installed(file))


def is_installed(path: str) -> bool:
    """Whether the code in the file ``path`` came with Python or with a package."""
    return "site-packages" in path or "dist-packages" in path or path.startswith((_STDLIB, "<frozen", "<string"))


def runs_training(kind: type) -> bool:
    """Whether it is a framework's, a loader or what iterates one, an optimizer, or what writes of the training."""
    if _within(module_of(kind), TRAININGS):
        return True
    return feeds_training(kind)


def feeds_training(kind: type) -> bool:
    """Whether it is a loader, what iterates one, or an optimizer: who holds that runs a training."""
    return any(module_of(owner) in FEEDING for owner in MRO(kind))


def _within(module: str, names: tuple[str, ...]) -> bool:
    return module.startswith(names) and any(module == name or module.startswith(name + ".") for name in names)


def module_of_function(function: Any) -> str:
    """The same of a function, which may have been given anything for a name."""
    name = function.__module__
    return name if type(name) is str else ""
