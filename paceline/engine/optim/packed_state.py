"""Packs what an optimizer remembers of single tensors, into vectors as long as all of them and numbers by name.

Snapshots and copies of a server's slice hold nothing else (`paceline.runtime.checkpointing.slice_capture`).

    a tensor as large as its parameter   lies in the vector of its name, where the parameter lies in the model
    any other tensor                     lies in `packed 0`, `packed 1`, ..., one after the other
    a number                             is a number

`of 3/step/scalar/float32` says that parameter 3 has a `step`, a tensor of no dimension, and its value is the number.
`group 0/k/int` is a number that the optimizer keeps in its first group, beside the options of that group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

PACKED = "packed "
ENTRY, GROUP = "of ", "group "
RATES = ("lr", "initial_lr")
"""What groups have that is a scheduler's, and no memory of the optimizer."""
_NUMBERS = {"bool": bool, "int": int, "float": float}


def pack(states: Sequence[dict[str, Any]], lengths: Sequence[int]) -> dict[str, Tensor | float]:
    """Returns the packed state. Whatever is neither tensor nor number is left out.

    `states`: of each parameter, by name; `lengths`: of the parameters.
    """
    starts, whole = list(itertools.accumulate(lengths, initial=0)), sum(lengths)
    found: dict[str, Tensor | float] = {}
    others: list[Tensor] = []
    for i, state in enumerate(states):
        for name, value in state.items():
            entry = f"{ENTRY}{i}/{name}"
            if type(value).__name__ in _NUMBERS:
                found[f"{entry}/{type(value).__name__}/"] = float(value)
            elif isinstance(value, Tensor):
                # A float32 vector carries integers of up to 2^24 exactly; `kind` restores the type.
                kind = str(value.dtype).removeprefix("torch.")
                if not value.dim():
                    found[f"{entry}/scalar/{kind}"] = float(value)
                elif value.numel() == lengths[i]:
                    # The entry only says that there is one; the numbers lie in the vector of that name.
                    found[f"{entry}/vector/{kind}"] = 1.0
                    # Parameters without such a state have zeros in the vector.
                    room = found.setdefault(name, torch.zeros(whole))
                    assert isinstance(room, Tensor)
                    room[starts[i] : starts[i + 1]] = value.detach().reshape(-1).float()
                else:
                    found |= {f"{entry}/shape {d}/{kind}": float(size) for d, size in enumerate(value.shape)}
                    others.append(value.detach().reshape(-1).float())
    return found | _chunks(others, whole)


def pack_groups(groups: Sequence[Mapping[str, Any]], begun: Sequence[Mapping[str, Any]]) -> dict[str, Tensor | float]:
    """Returns the numbers of parameter groups that are not what they were when the optimizer was `begun`."""
    return {
        f"{GROUP}{i}/{name}/{type(value).__name__}": float(value)
        for i, (group, first) in enumerate(zip(groups, begun, strict=False))
        for name, value in group.items()
        if name not in RATES and type(value).__name__ in _NUMBERS and first.get(name) != value
    }


def unpack_groups(state: Mapping[str, Any], groups: Sequence[dict[str, Any]]) -> None:
    """Gives parameter groups the numbers that were packed."""
    for key, value in state.items():
        if key.startswith(GROUP):
            number, _, rest = key.removeprefix(GROUP).partition("/")
            name, _, kind = rest.rpartition("/")
            if int(number) < len(groups):
                groups[int(number)][name] = _NUMBERS[kind](float(value))


def _chunks(others: list[Tensor], length: int) -> dict[str, Tensor | float]:
    """Returns the other tensors one after the other, cut into vectors of `length` numbers, the last
    padded with zeros.
    """
    if not others:
        return {}
    packed = torch.cat(others)
    chunks = torch.split(nn.functional.pad(packed, (0, -len(packed) % length)), length)
    return {f"{PACKED}{i}": chunk.clone() for i, chunk in enumerate(chunks)}


def unpack(state: dict[str, Any], parameters: Sequence[Tensor]) -> list[dict[str, Any]]:
    """Returns for each of `parameters` the state that was packed."""

    starts = list(itertools.accumulate((p.numel() for p in parameters), initial=0))
    chunks = sum(name.startswith(PACKED) for name in state)
    packed = torch.cat([state[f"{PACKED}{i}"] for i in range(chunks)]) if chunks else torch.empty(0)
    shapes: dict[tuple[int, str, str], list[int]] = {}
    found: list[dict[str, Any]] = [{} for _ in parameters]
    for key, value in state.items():
        if not key.startswith(ENTRY):
            continue
        number, _, rest = key.removeprefix(ENTRY).partition("/")
        name, kind, dtype = rest.rsplit("/", 2)
        i = int(number)
        if kind in _NUMBERS:
            found[i][name] = _NUMBERS[kind](float(value))
        elif kind == "scalar":
            found[i][name] = torch.tensor(float(value), dtype=getattr(torch, dtype))
        elif kind == "vector":
            part = state[name][starts[i] : starts[i + 1]].to(getattr(torch, dtype), copy=True)
            found[i][name] = part.view(parameters[i].shape)
        else:
            shapes.setdefault((i, name, dtype), []).append(int(value))
    # The entries come in the order in which `pack` wrote them, so the packed tensors follow one another in that order.
    at = 0
    for (i, name, dtype), shape in shapes.items():
        size = math.prod(shape)
        found[i][name] = packed[at : at + size].to(getattr(torch, dtype), copy=True).view(shape)
        at += size
    return found
