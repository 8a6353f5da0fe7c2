"""DiLoCo takes many local steps, then one outer Nesterov step along their average; optionally in fragments.

    worker i:  repeat  H times:  x_i <- InnerOpt(x_i, grad f_i(x_i))
                       Delta <- sum(n_i (w - x_i)) / sum(n_i)          (one Mean over all)
                       v <- mu v + Delta;  w <- w - lr (Delta + mu v)  (OuterOpt)
                       x_i <- w

Douillard et al. 2023, Algorithm 1. w: the global weights, x_i: those of worker i; v, the outer momentum, starts at
zero; all workers compute the same w and v. lr = 1 and mu = 0 is local SGD. InnerOpt is AdamW in the paper.

Streaming DiLoCo (Douillard et al. 2025, arXiv 2501.18512, Algorithm 2): with P `fragments` one of them is exchanged
every H / P steps, in turn, so each one every H steps; with a `delay` of tau steps workers train on while it travels:

    at step t:          send Delta_p = w_p - x_i,p of the fragment p whose turn it is
    at step t + tau:    receive its mean;  (w_p, v_p) <- OuterOpt;  x_i,p <- alpha x_i,p + (1 - alpha) w_p

alpha = 0 forgets what was learnt of p in those tau steps, alpha = 1 would never synchronise. Without a delay alpha
does not matter: x_i,p <- w_p. A fragment is a run of consecutive parameters here (groups of layers in the paper). Only
one is on its way at a time, so tau < H / P.

Eager updates (Kale et al. 2025, arXiv 2502.12996), with `eager`: an exchange may take until the next turn, and a worker
does not wait to use its own part of it. It goes on with an estimate: its fresh Delta, and those that the others had one
exchange before.

    at the turn of p:   Delta_i <- y_i,p - x_i,p
                        E_i <- Delta_i / M + (Delta' - Delta'_i / M)
                        (y_i,p, u_i,p) <- OuterOpt with E_i;  x_i,p <- y_i,p;  send Delta_i
    at the next turn:   receive the mean Delta;  (w_p, v_p) <- OuterOpt with Delta

Delta'_i and Delta' are this worker's part and the mean of the exchange of p before. So the mean replaces the estimate:
in the sum of all E_i every exchange but the last is its mean. w and v are those of DiLoCo with delayed outer gradients.
They are equal on all workers, and w is the model that is evaluated. y_i and u_i are a worker's own; they start as w and
v do, and with Delta' they cost three vectors. Late means make OuterOpt less stable: a lower lr or mu may be needed.

We had the abstract of that paper and others' summaries, not its algorithm boxes. Ours: 1 / M, M the number of workers,
is n_i over the samples of the last mean, once there is one. A newcomer starts with y = w and u = v, and so does a
worker whose Delta_i is not finite. What is on its way when a run ends, a resumed run sends once more.

A worker whose x_i is not finite takes all of w as x_i, with every fragment, and its inner optimizer starts anew. (Ours:
one fragment that is NaN would make the others NaN in the next step.)

Memory of the inner optimizer: kept by default; the paper found that to synchronise it costs three times the traffic for
no gain. `average` needs delay = 0 and no `eager`: otherwise the optimizers do not pause at one point.

Use it across thin links, with H of some hundred steps on a long run. On short runs H must be small, and on uneven
workers everybody waits for the slowest one's H steps (see asyncdiloco).
"""

from __future__ import annotations

from paceline.core.local.outer_nesterov import WithOuterNesterov
from paceline.core.scheme import Paper, scheme


@scheme(
    "diloco",
    summary="many local steps, then an outer Nesterov step; streaming fragments with overlap",
    paper=Paper(
        key="douillard2023diloco",
        authors="Douillard, Arthur and Feng, Qixuan and Rusu, Andrei A. and Chhaparia, Rachita and others",
        title="DiLoCo: Distributed Low-Communication Training of Language Models",
        venue="arXiv 2311.08105",
        year=2023,
        url="https://arxiv.org/abs/2311.08105",
    ),
)
class DiLoCo(WithOuterNesterov):
    pass
