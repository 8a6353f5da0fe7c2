"""Asynchronous parallel (ASGD, Downpour with one step): nobody waits for anybody.

    worker i:  repeat  g <- grad f_i(w);  push g;  w <- pull
    server:    upon g:  w <- w - eta s(Y) g;  answer at once

Y is one plus the number of updates applied since the worker's weights left the server; s is the staleness
weighting (none by default, as in the paper). A gradient is the mean over its batch; N workers make N updates where
BSP makes one, so the best learning rate is lower than BSP's.

Use it when speeds differ and staleness is tolerable. Not with large learning rates or momentum and many workers:
late gradients then do harm (see `weighting`, and GSP).
"""

from __future__ import annotations

from typing import Any

from paceline.core.clocked import ClockedServer, ClockedWorker
from paceline.core.role import Place
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.staleness import Weighting


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
class ASP(Scheme):
    weighting: str = parameter(
        "none",
        "weight of a late gradient: none, inverse (1/Y), power:p, exponential:a, cutoff:limit",
        check=Weighting.parse,
    )

    Worker = ClockedWorker

    class Server(ClockedServer):
        def __init__(self, scheme: Any, place: Place) -> None:
            super().__init__(scheme, place)
            self.weigh = Weighting.parse(scheme.weighting)  # type: ignore[method-assign]
