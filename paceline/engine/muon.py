"""Muon moves the matrices inside a network along an orthogonal direction; AdamW trains everything else.

    B <- mu B + g;   O <- orthogonalised (g + mu B)        (five Newton-Schulz iterations)
    W <- (1 - gamma lambda) W - 0.2 sqrt(max(rows, columns)) gamma O

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon); the step is torch.optim.Muon's. The factor makes it as
long as a step of AdamW usually is (Liu et al. 2025, arXiv 2502.16982), so one learning rate gamma and one weight decay
lambda serve both.

Muon trains parameters of two dimensions. AdamW trains the others: biases, scales, convolutions, embeddings, and the
last layer of the network, if that is linear.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError


class MuonWithAdamW(torch.optim.Optimizer):
    """Trains `module` by Muon where that fits, and by AdamW elsewhere: two groups, of which the second may be absent.

    among: the parameters that are trained; by default all of the module's that require a gradient. Raises ConfigError
    for a module without a matrix for Muon.
    """

    def __init__(
        self,
        module: nn.Module,
        lr: float = 0.001,
        *,
        momentum: float = 0.95,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        among: Iterable[nn.Parameter] | None = None,
    ) -> None:
        trained = list(among) if among is not None else [p for p in module.parameters() if p.requires_grad]
        outside = {id(p) for p in _embeddings_and_head(module)}
        matrices = [p for p in trained if p.ndim == 2 and p.numel() and id(p) not in outside]
        if not matrices:
            raise ConfigError("muon: the model has no matrix but embeddings and its last layer; take adamw")
        inside = {id(p) for p in matrices}
        others = [p for p in trained if id(p) not in inside]
        muon = torch.optim.Muon(
            matrices, lr, momentum=momentum, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
        )
        self._members: list[torch.optim.Optimizer] = [muon]
        if others:
            self._members.append(torch.optim.AdamW(others, lr, betas=betas, eps=eps, weight_decay=weight_decay))
        super().__init__([group for member in self._members for group in member.param_groups], {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Makes one step of both. Returns what `closure`, called before it, returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Both work on this optimizer's groups and state, which `load_state_dict` replaces.
        for member, group in zip(self._members, self.param_groups, strict=True):
            member.param_groups, member.state = [group], self.state
            member.step()
        return loss


def _embeddings_and_head(module: nn.Module) -> list[Tensor]:
    """Returns the weights of embeddings and of the last layer that has parameters, if that is linear."""
    layers = [layer for layer in module.modules() if any(True for _ in layer.parameters(recurse=False))]
    weights: list[Tensor] = [layer.weight for layer in layers if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    if layers and isinstance(layers[-1], nn.Linear):
        weights.append(layers[-1].weight)
    return weights
