"""Lets updates leave alone what no forward pass has used, as torch's optimizers skip `grad is None`.

`kept` is for rules written in vector arithmetic. `Pieces` is for torch's own optimizers: one flat vector is one
parameter of theirs until a part of it is unused; then it is cut there, so that each piece has moments and a count of
steps of its own, as a parameter of torch has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.spans import Spans, common, merged
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

STEP = "step"
STEP_FROM = "step from "
"""`step from N` is the count of steps of the piece that begins at N, where there are several pieces."""


def kept(new: Flat, old: Flat | None, unused: Spans) -> Flat:
    """Returns `new`, but in the unused spans the numbers of `old`, or zeros where there is none."""
    out = spare(len(new), new.device)
    new.copy_into(out)
    for start, stop in unused:
        if old is None:
            out[start:stop].zero_()
        else:
            old[start:stop].copy_into(out[start:stop])
    return Flat(out)


class ZeroTensors:
    """Finds the tensors of a gradient of which every number is zero; `lengths`: theirs, in the order of the vector.

    It serves means over workers that do not tell one another what they have used. Where there is no such tensor it
    looks at the first number of each tensor only.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        edges = itertools.accumulate(lengths, initial=0)
        self._spans = [(start, stop) for start, stop in itertools.pairwise(edges) if start < stop]
        self._starts = torch.tensor([start for start, _ in self._spans], dtype=torch.int64)

    def of(self, g: Flat) -> Spans:
        """Returns where such tensors of `g` lie.

        It ignores the common factor of `g`, so it takes no pass over memory.
        """
        if not g.scale:
            return merged(self._spans)
        numbers = g.tensor
        if self._starts.device != numbers.device:
            self._starts = self._starts.to(numbers.device)
        suspects = (numbers[self._starts] == 0).nonzero().flatten().tolist()
        found = (self._spans[i] for i in suspects)
        return merged((start, stop) for start, stop in found if not numbers[start:stop].any())


def without_numbers(g: Any, unused: Spans) -> Spans:
    """Returns the spans of `unused` in which the gradient `g` is zero.

    A codec may send something there that it had left out of an earlier gradient.
    """
    return tuple((start, stop) for start, stop in unused if not g[start:stop].norm())


class Pieces:
    """A torch optimizer over one flat vector, which it is handed anew for each step.

    The vector may be made of several parameter groups, one after the other; none is empty.
    """

    def __init__(
        self,
        make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
        tensors: Sequence[int] = (),
        *,
        like: Tensor | None = None,
        groups: Sequence[int] = (),
    ) -> None:
        """`make` gets one parameter a group, and puts each into a group of the optimizer.

        tensors: the lengths of the tensors in the vector, where the optimizer looks at whole ones.
        like: a vector like those to come, for optimizers that look at it when they are made.
        groups: the lengths of the parameter groups, where there are several.
        """
        self._groups = list(itertools.accumulate(groups[:-1], initial=0))  # where they begin
        self._parameters = [nn.Parameter(torch.empty(0) if like is None else like) for _ in self._groups]
        self._starts, self._length = list(self._groups), sum(groups)
        self._optimizer = make(self._parameters)
        self._tensors = tensors

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """Returns learning rate, momentum and so on of each group; the caller may change them."""
        return self._optimizer.param_groups

    @property
    def lr(self) -> float:
        """Returns the rate of the first group."""
        return float(self._optimizer.param_groups[0]["lr"])

    @property
    def remember_nothing(self) -> bool:
        """Returns True before the first step, or where the optimizer keeps no state."""
        return not any(self._optimizer.state.get(p) for p in self._parameters)

    def step(self, w: Tensor, g: Tensor, rates: Sequence[float], unused: Spans) -> None:
        """Changes `w` in place, except in unused spans; `rates`: the learning rate of each group."""
        self._length = len(w)
        if unused:
            self._cut(unused)
        for p, start, stop in zip(self._parameters, self._starts, self._stops, strict=True):
            p.grad = None  # of another length before the first call
            p.data = w[start:stop]
            p.grad = None if common(unused, ((start, stop),)) else g[start:stop]
        for group, lr in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = lr
        self._optimizer.step()
        for p in self._parameters:
            p.grad = None  # it would keep the gradient's buffer until the next update
            p.data = torch.empty(0)

    def reset(self) -> None:
        self._optimizer.state.clear()

    def state(self) -> dict[str, Tensor | float | int]:
        """Returns copies: vectors as long as the whole, and how many steps each piece has made."""
        states = [self._optimizer.state.get(p, {}) for p in self._parameters]
        if len(states) == 1:
            return {name: v.detach().clone() for name, v in states[0].items() if isinstance(v, Tensor)}
        whole: dict[str, Tensor | float | int] = {}
        for name in dict.fromkeys(itertools.chain(*states)):
            values = [state.get(name) for state in states]
            found = next(v for v in values if v is not None)
            if not isinstance(found, Tensor):
                continue
            if name == STEP:
                whole[name] = torch.stack([v for v in values if v is not None]).max()
            else:
                whole[name] = torch.cat([self._of(i, v, found) for i, v in enumerate(values)])
        # Pieces have made different numbers of steps; the vectors cannot say so, and Adam's correction needs them.
        steps = (float(state.get(STEP, 0.0)) for state in states)
        return whole | {f"{STEP_FROM}{start}": n for start, n in zip(self._starts, steps, strict=True)}

    def _of(self, i: int, v: Tensor | None, like: Tensor) -> Tensor:
        """Returns a vector of piece `i`, zeros where there is none."""
        return like.new_zeros(self._stops[i] - self._starts[i]) if v is None else v.detach()

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on where `state()` was taken, with the pieces that there were then."""
        vectors = {k: v for k, v in state.items() if isinstance(v, Tensor) and not k.startswith(STEP_FROM)}
        whole = {k: v.detach().clone() for k, v in vectors.items()}
        steps = {int(k.removeprefix(STEP_FROM)): float(v) for k, v in state.items() if k.startswith(STEP_FROM)}
        if not steps:
            self._optimizer.state[self._parameters[0]] = whole
        elif vectors:
            self._length = max(v.numel() for v in vectors.values())
            self._parameters, self._starts = [nn.Parameter(torch.empty(0))], [0]
            self._optimizer.state.clear()
            self._optimizer.state[self._parameters[0]] = whole
            # The vectors are one piece at first; cutting it gives each piece its part of them.
            self._become(sorted({*steps, *self._groups}))
            for p, start in zip(self._parameters, self._starts, strict=True):
                if STEP in vectors:
                    self._optimizer.state[p][STEP] = vectors[STEP].new_tensor(steps.get(start, 0.0))

    # ---- pieces ------------------------------------------------------------------------------------------
    @property
    def _stops(self) -> list[int]:
        return [*self._starts[1:], self._length]

    def _cut(self, unused: Spans) -> None:
        """Cuts pieces so that each is unused as a whole or not at all."""
        edges = {*self._starts, *itertools.chain(*unused)}
        if self._tensors:  # each a piece of its own
            edges.update(itertools.accumulate(self._tensors[:-1]))
        if len(edges - {self._length}) > len(self._starts):
            self._become(sorted(edges - {self._length}))

    def _become(self, starts: list[int]) -> None:
        """Cuts the vector at `starts`, which include the present cuts. Each new piece gets its part of the former one's
        state.
        """
        old = list(zip(self._parameters, self._starts, self._stops, strict=True))
        states, pieces = dict(self._optimizer.state), []
        self._optimizer.state.clear()
        for start, stop in itertools.pairwise([*starts, self._length]):
            # A new piece lies within one former piece, because the former cuts are among the new ones.
            former, begin, end = next(piece for piece in old if piece[1] <= start < piece[2])
            same = (begin, end) == (start, stop)
            pieces.append(former if same else nn.Parameter(torch.empty(0)))
            if former in states:
                self._optimizer.state[pieces[-1]] = {
                    name: v[start - begin : stop - begin].clone() if isinstance(v, Tensor) and v.dim() else _copy(v)
                    for name, v in states[former].items()
                }
        self._parameters, self._starts = pieces, starts
        # Each piece belongs to the parameter group that its first number is in; groups are cut points, too.
        edges = itertools.pairwise([*self._groups, self._length])
        for group, (start, stop) in zip(self._optimizer.param_groups, edges, strict=True):
            group["params"] = [p for p, at in zip(pieces, starts, strict=True) if start <= at < stop]
            if "tensors" in group:
                group["tensors"] = ()


def _copy(v: Any) -> Any:
    return v.clone() if isinstance(v, Tensor) else v
