"""Names of parameters and buffers as the plain module has them, where torch.compile or DataParallel wraps it or a part.

    compiled        _orig_mod.0.weight, 0._orig_mod.weight
    DataParallel    module.0.weight
    plain           0.weight

Files are written with the plain names, so that they load wherever the module is not wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""Kinds of modules that hold another one, under this name."""
_INSIDE = frozenset(WRAPPERS.values())


def compared(name: str) -> str:
    """Returns a name without what wrappers add, for a comparison: a module of the user's own may be called `module`."""
    return ".".join(part for part in name.split(".") if part not in _INSIDE)


def plain_state(module: nn.Module) -> dict[str, Tensor]:
    """Returns the state_dict of a module under plain names."""
    added = {
        f"{path}.{inside}".removeprefix(".")
        for path, part in module.named_modules(remove_duplicate=False)
        for kind in type(part).__mro__
        if (inside := WRAPPERS.get(kind.__name__))
    }
    return {_without(added, name): tensor for name, tensor in module.state_dict().items()}


def in_names_of(module: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns what a file has under the names that the state_dict of `module` has, whichever of both is wrapped.

    What fits none keeps its name.
    """
    own = module.state_dict().keys()
    plain = {compared(name): name for name in own}
    return {name if name in own else plain.get(compared(name), name): tensor for name, tensor in state.items()}


def _without(added: set[str], name: str) -> str:
    """Returns a name without its parts whose paths are `added`."""
    if not added:
        return name
    parts = name.split(".")
    return ".".join(part for i, part in enumerate(parts, 1) if ".".join(parts[:i]) not in added)
