"""In LARS and LAMB the rate of every tensor follows the length of its weights over the length of its step.

LARS (You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", 2017), for each tensor w with gradient g,
trust coefficient eta, weight decay beta, momentum m, learning rate gamma:

    lambda = eta |w| / (|g| + beta |w|);     v <- m v + gamma lambda (g + beta w);     w <- w - v

LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020), with Adam's moments
m and v, corrected for their start, and weight decay lambda:

    r = m / (sqrt(v) + eps) + lambda w;     w <- w - gamma |w| / |r| r

A factor is 1 where one of its lengths is 0. Biases and scales are treated as all tensors are, as the papers' formulas
have it; some implementations leave them out.

Both are optimizers of torch over parameters, each of which is a tensor; or over one flat parameter, which `tensors`
takes apart: the lengths of what lies in it, in order. Use them for large batches. The length of a tensor has to be
known, so a server must hold whole ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


class _Trusting(torch.optim.Optimizer):
    """Both optimizers derive from this class, which finds the tensors' pieces and makes the step."""

    def __init__(self, parameters: Iterable[Any], tensors: Sequence[int], **defaults: Any) -> None:
        if defaults["lr"] < 0:
            raise ValueError(f"Invalid learning rate: {defaults['lr']}")
        if defaults["weight_decay"] < 0:
            raise ValueError(f"Invalid weight_decay value: {defaults['weight_decay']}")
        super().__init__(parameters, {**defaults, "tensors": tuple(tensors)})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Makes one update with the gradients there are. Takes no closure."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if not self.state[p]:
                        self.state[p].update(self.fresh(p, group))
                    self.update(p, p.grad, self.state[p], group)

    @abstractmethod
    def fresh(self, w: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """Returns the state of a tensor before its first step."""

    @abstractmethod
    def update(self, w: Tensor, g: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Changes `w` in place."""


class LARS(_Trusting):
    """This optimizer is LARS. `trust` is eta; the other numbers are those of torch.optim.SGD."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
        tensors: Sequence[int] = (),
    ) -> None:
        """Raises ValueError for a negative number."""
        super().__init__(params, tensors, lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust)

    def fresh(self, w: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """Returns the state before the first step: the momentum, where there is one."""
        return {"momentum_buffer": torch.zeros_like(w)} if group["momentum"] else {}

    def update(self, w: Tensor, g: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Makes one step on `w` in place (You et al., 2017): each tensor has the rate trust |w| / (|g| + decay |w|)."""
        decay = group["weight_decay"]
        ws, gs = _lengths(w, group), _lengths(g, group)
        rates = _where_both(ws, gs, group["trust"] * ws / (gs + decay * ws)) * group["lr"]
        d = torch.add(g, w, alpha=decay)
        _scale(d, rates, group)
        if group["momentum"]:
            d = state["momentum_buffer"].mul_(group["momentum"]).add_(d)
        w.sub_(d)


class LAMB(_Trusting):
    """This optimizer is LAMB. The numbers are those of torch.optim.AdamW."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        tensors: Sequence[int] = (),
    ) -> None:
        """Raises ValueError for a negative number or a beta of 1 or more."""
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"Invalid beta parameters: {betas}")
        super().__init__(params, tensors, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def fresh(self, w: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """Returns the state before the first step: both moments and the number of steps."""
        return {"exp_avg": torch.zeros_like(w), "exp_avg_sq": torch.zeros_like(w), "step": torch.tensor(0.0)}

    def update(self, w: Tensor, g: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Makes one step on `w` in place (You et al., 2020): Adam's step, whose length is that of each tensor."""
        beta1, beta2 = group["betas"]
        m, v = state["exp_avg"], state["exp_avg_sq"]
        state["step"] += 1
        t = float(state["step"])
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        r = (v / (1 - beta2**t)).sqrt_().add_(group["eps"])
        torch.div(m, r, out=r).div_(1 - beta1**t).add_(w, alpha=group["weight_decay"])
        ws, rs = _lengths(w, group), _lengths(r, group)
        _scale(r, _where_both(ws, rs, ws / rs) * group["lr"], group)
        w.sub_(r)


def _pieces(flat: Tensor, group: dict[str, Any]) -> Sequence[Tensor]:
    """Returns the tensors in a flat vector as views."""
    return torch.split(flat, list(group["tensors"])) if group["tensors"] else (flat,)


def _lengths(flat: Tensor, group: dict[str, Any]) -> Tensor:
    """Returns the Euclidean length of every tensor in `flat`."""
    norms: Any = torch._foreach_norm(list(_pieces(flat, group)))
    return torch.stack(norms)


def _where_both(one: Tensor, other: Tensor, factors: Tensor) -> Tensor:
    """Returns the factors, or 1 where one of the two lengths is 0."""
    return torch.where((one > 0) & (other > 0), factors, torch.ones_like(factors))


def _scale(flat: Tensor, factors: Tensor, group: dict[str, Any]) -> None:
    """Changes `flat` in place: every tensor in it is multiplied by its factor."""
    for piece, factor in zip(_pieces(flat, group), factors.unbind(), strict=True):
        piece.mul_(factor)
