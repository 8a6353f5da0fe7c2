"""MuLoCo is DiLoCo whose workers make their local steps with Muon.

    worker k:  repeat  theta_k <- theta
                       H times:  theta_k <- Muon(theta_k, grad f_k(theta_k))
                       Delta <- sum(n_k (theta - theta_k)) / sum(n_k)                  (one Mean over all)
                       u <- mu u + Delta;  theta <- theta - eta (Delta + mu u)         (Nesterov)

Therien et al. 2025, arXiv 2505.23725. theta: the global weights; u, the outer momentum, starts at zero. Muon trains
the matrices inside the network, and AdamW all else: biases, scales, embeddings and the last layer. Muon makes its
matrix's step nearly orthogonal, so no few directions of a worker's Delta outweigh the others. The paper finds on
language models that more workers cost less accuracy than with AdamW inside.

The boxes and all parameters are those of diloco, `eager` and fragments too; with any other optimizer inside this is
diloco. `paceline train --scheme muloco` takes Muon (`--optimizer muon`) where no optimizer is named; loops of your own
give an optimizer, as ever (docs/optimizers.md). With `--optimizer` all schemes of a `race` have that one. A simulation
without a model has no optimizer, and shows times and traffic.

H = 30, eta = 0.7 and mu = 0.6 are the defaults of the authors' package for one worker; for 16 workers their jobs have
eta = 1 and mu = 0.9. We had the abstract and their code, not the text. The learning rate is Muon's own scale: try 0.003
to 0.03.

Use it where diloco fits, with transformers and other networks that are mostly matrices. Not for networks of
convolutions, of which Muon here trains nothing.
"""

from __future__ import annotations

from typing import ClassVar

from paceline.core.local.outer_nesterov import WithOuterNesterov
from paceline.core.scheme import Paper, parameter, scheme


@scheme(
    "muloco",
    summary="DiLoCo with Muon for the local steps of matrices, and AdamW for the rest",
    paper=Paper(
        key="therien2025muloco",
        authors="Therien, Benjamin and Huang, Xiaolong and Defazio, Aaron and Rish, Irina and Belilovsky, Eugene",
        title="MuLoCo: Muon is a Practical Inner Optimizer for DiLoCo",
        venue="arXiv 2505.23725",
        year=2025,
        url="https://arxiv.org/abs/2505.23725",
    ),
)
class MuLoCo(WithOuterNesterov):
    h: int = parameter(30, "H: local steps between two exchanges of the same parameters", low=1)
    outer_lr: float = parameter(0.7, "eta: outer learning rate", low=0.0)
    outer_momentum: float = parameter(0.6, "mu: outer Nesterov momentum", low=0.0, high=0.999)

    local_optimizer: ClassVar[str] = "muon"
