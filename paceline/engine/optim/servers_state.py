"""Carries what an optimizer remembers to the servers that make its steps, and back into the optimizer.

    optimizer.state[p]            of the rules on servers (`make_rule`)
    momentum_buffer               momentum, as long as the model, and its scale
    exp_avg, exp_avg_sq, ...      vectors of the same names
    step                          step; where parameters differ, or have groups, `step from N` of those from N on
    anything of a PathRule        as `packed_state` packs it

The parameters are the trained ones in the order of the model's vector. Empty ones remember nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from paceline.engine.optim.own_optimizer import packed, recall
from paceline.engine.optim.packed_state import PACKED
from paceline.engine.optim.unused_parameters import STEP, STEP_FROM
from paceline.engine.specs import OptimizerRecipe

BUFFER, MOMENTUM, SCALE = "momentum_buffer", "momentum", "scale"
"""What torch's SGD calls its memory, what the rules on servers call it, and the factor that they keep apart."""


def remembers(optimizer: torch.optim.Optimizer) -> bool:
    """Returns True if a step of `optimizer` goes by earlier ones: it has made some, or has loaded such a state."""
    values = (value for own in optimizer.state.values() for value in own.values())
    return any(isinstance(value, Tensor) and bool(value.any()) for value in values)


def to_servers(
    recipe: OptimizerRecipe, optimizer: torch.optim.Optimizer, trained: Sequence[nn.Parameter]
) -> tuple[dict[str, Tensor], dict[str, float]] | None:
    """Returns vectors as long as the model, float32, and numbers; None for a state that cannot be cut into slices."""
    parameters = [p for p in trained if p.numel()]
    if recipe.lazy:
        return None
    if recipe.by_path is not None:
        state = packed(optimizer, parameters)
        if any(name.startswith(PACKED) for name in state):
            return None  # these tensors lie one after the other, wherever their parameters are
        vectors = {name: v for name, v in state.items() if isinstance(v, Tensor)}
        return vectors, {name: float(v) for name, v in state.items() if name not in vectors}
    own = [optimizer.state.get(p, {}) for p in parameters]
    names = dict.fromkeys(name for of in own for name, v in of.items() if isinstance(v, Tensor) and name != STEP)
    vectors = {
        name: torch.cat([_flat(of.get(name), p) for of, p in zip(own, parameters, strict=True)]) for name in names
    }
    if recipe.name == "sgd":
        return ({MOMENTUM: vectors[BUFFER]}, {SCALE: 1.0}) if BUFFER in vectors else None
    return vectors, _steps(recipe, own, parameters)


def from_servers(
    recipe: OptimizerRecipe,
    vectors: Mapping[str, Tensor],
    numbers: Mapping[str, float],
    optimizer: torch.optim.Optimizer,
    trained: Sequence[nn.Parameter],
) -> None:
    """Loads into `optimizer` what servers remember; the inverse of `to_servers`."""
    parameters = [p for p in trained if p.numel()]
    if recipe.by_path is not None:
        recall(optimizer, parameters, {**vectors, **numbers})
        return
    scale = numbers.get(SCALE, 1.0)
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    pieces = sorted(int(name.removeprefix(STEP_FROM)) for name in numbers if name.startswith(STEP_FROM))
    at = 0
    for p in parameters:
        start, at = at, at + p.numel()
        own = {
            BUFFER if name == MOMENTUM else name: (v[start:at] * scale if name == MOMENTUM else v[start:at].clone())
            .view(p.shape)
            .to(p.device, p.dtype)
            for name, v in vectors.items()
        }
        if not own:
            continue
        if (steps := numbers.get(STEP)) is not None:
            piece = max((piece for piece in pieces if piece <= start), default=None)
            steps = steps if piece is None else numbers[f"{STEP_FROM}{piece}"]
            if not steps:
                continue  # no step has used it yet
            on_device = groups[p].get("fused") or groups[p].get("capturable")
            own[STEP] = torch.tensor(float(steps), device=p.device if on_device else "cpu")
        optimizer.state[p] = own


def _steps(
    recipe: OptimizerRecipe, own: Sequence[Mapping[str, Tensor]], parameters: Sequence[nn.Parameter]
) -> dict[str, float]:
    """Returns how many steps the parameters have made: one number, or one for each run of parameters with the same."""
    steps = [float(of[STEP]) if STEP in of else 0.0 for of in own]
    if len(set(steps)) == 1 and not recipe.groups:
        return {STEP: steps[0]}
    starts = list(itertools.accumulate((p.numel() for p in parameters), initial=0))[:-1]
    cuts = {0, *itertools.accumulate(group.length for group in recipe.groups[:-1])}
    changes = {start for start, (a, b) in zip(starts[1:], itertools.pairwise(steps), strict=True) if a != b}
    at = {start: n for start, n in zip(starts, steps, strict=True) if start in cuts | changes}
    return {STEP: max(steps), **{f"{STEP_FROM}{start}": n for start, n in at.items()}}


def _flat(value: object, p: nn.Parameter) -> Tensor:
    """Returns a tensor of the state as float32 numbers on the host, zeros where there is none."""
    if not isinstance(value, Tensor) or value.shape != p.shape:
        return torch.zeros(p.numel())
    return value.detach().reshape(-1).to("cpu", torch.float32)
