"""SparseLoCo: DiLoCo whose workers send 1 to 3 % of what changed, in two bits; error feedback takes momentum's place.

    worker r:  repeat  H times:  theta_r <- InnerOpt(theta_r, grad f_r(theta_r))
                       Delta_r <- theta - theta_r
                       e_r <- beta e_r + Delta_r
                       send D_r <- Q(Top-k(e_r));  e_r <- e_r - D_r
                       theta <- theta - alpha sum(n_r D_r) / sum(n_r)      (one Mean over all)
                       theta_r <- theta

Sarfi et al. 2025, arXiv 2508.15706. e_r, the error feedback, is what worker r has not sent, and starts at zero; with
beta below 1 it fades. There is no outer momentum: what all steps agree on adds up in e_r until it is sent, which the
paper finds to approximate it. InnerOpt is AdamW in the paper.

Top-k, Q and e_r are the codec `sparse2bit`, with `density` and `beta` (docs/codecs.md): places are chosen chunk by
chunk of 4096 numbers. Tensors of fewer numbers than `--codec-exact-below` travel as they are. Another `--codec` takes
its place; then `density` and `beta` mean nothing. In a simulation without codecs this is local SGD with a rate alpha.

The weights n_r, the samples, are ours: with equal batches they give the paper's plain mean. We had the abstract and the
update rule as others print it; alpha and beta are ours, and the paper's grids may have better ones.

Use it where diloco fits and the link is so thin that even a model every H steps is too much. As there, everybody waits
for the slowest worker's H steps. On short runs most of what was learnt would still be in e_r. So where the length of a
run is known, H is shortened and the density raised until every number is sent twice on average, unless they are given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, cast

from paceline.core.collective.mean_server import Averaged
from paceline.core.local.local_sgd import LocalWorker, memory_parameter
from paceline.core.scheme import Paper, Scheme, parameter, scheme

SENT_MIN = 2
"""How often a run sends every number on average, at least; with the default density that takes 64 exchanges."""


@scheme(
    "sparseloco",
    summary="many local steps; 1 to 3 % of the change travels, in two bits, with error feedback for momentum",
    paper=Paper(
        key="sarfi2025sparseloco",
        authors="Sarfi, Amir and Therien, Benjamin and Lidin, Joel and Belilovsky, Eugene",
        title="Communication Efficient LLM Pre-training with SparseLoCo",
        venue="arXiv 2508.15706",
        year=2025,
        url="https://arxiv.org/abs/2508.15706",
    ),
)
class SparseLoCo(Scheme):
    h: int = parameter(20, "H: local steps between two exchanges", low=1)
    alpha: float = parameter(1.0, "outer learning rate", low=0.0)
    density: float = parameter(0.03125, "k: share of the numbers that is sent", low=1e-6, high=0.5)
    beta: float = parameter(0.95, "decay of the error feedback", low=0.0, high=1.0)
    memory: str = memory_parameter("keep")

    round_steps = "h"
    needs_mean = True
    trains_locally = True
    lock_step = True

    def for_run(self, steps: int, given: Collection[str]) -> Scheme:
        own: Any = super().for_run(steps, given)
        if "density" in given:
            return cast(Scheme, own)
        density = min(0.5, SENT_MIN * own.h / max(1, steps))
        return dataclasses.replace(own, density=max(own.density, density))  # type: ignore[no-any-return]

    @property
    def codec(self) -> str:
        return f"sparse2bit(ratio={self.density!r}, decay={self.beta!r})"

    class Worker(LocalWorker):
        def steps(self) -> int:
            return int(self.scheme.h)

        def outer(self, mean: Averaged) -> Any:
            return self.w + mean.v * self.scheme.alpha
