"""Asynchronous parallel (ASGD, Downpour with one step): nobody waits for anybody.

    worker i:  repeat  g <- grad f_i(w);  push g;  w <- pull
    server:    upon g:  w <- w - eta s(Y) g;  answer at once

Y is one plus the number of updates applied since the worker's weights left the server; s is the staleness
weighting (none by default, as in the paper). A gradient is the mean over its batch; N workers make N updates where
BSP makes one, so the best learning rate is lower than BSP's: Y is about N on average, and with gradients that are t
updates late SGD on a quadratic is stable up to sin(pi / (2 (2 t + 1))) of the rate with fresh ones (5 % for N = 16).
So the rate that is given is divided by N by default (`--lr-scale`), and N updates go as far as one of BSP's.

A worker may average `steps` mini-batches before it pushes, or train them locally and send the difference
(`payload` = delta: Downpour's n_push = n_fetch = `steps`) or its weights (elastic averaging): what SpeeDO offers.

Use it when speeds differ and staleness is tolerable. Not with large learning rates or momentum and many workers:
late gradients then do harm (see `weighting`, and GSP).
"""

from __future__ import annotations

from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Payload, Weighted
from paceline.core.scheme import Paper, scheme


@scheme(
    "asp",
    summary="asynchronous: every gradient is applied on arrival",
    paper=Paper(
        key="dean2012large",
        authors="Dean, Jeffrey and Corrado, Greg and Monga, Rajat and others",
        title="Large Scale Distributed Deep Networks",
        venue="Advances in Neural Information Processing Systems 25",
        year=2012,
        url="https://papers.nips.cc/paper/4687-large-scale-distributed-deep-networks",
    ),
)
class ASP(Payload, Weighted):
    Worker = ClockedWorker
    Server = ClockedServer
