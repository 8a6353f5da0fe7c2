"""Local SGD (periodic averaging): every worker makes tau steps of its own, then all average their weights.

    worker i:  repeat  x_i <- w
                       tau times:  x_i <- x_i - eta grad f_i(x_i)
                       w <- sum(n_i x_i) / sum(n_i)                    (one Mean over all)

Stich (ICLR 2019), Algorithm 1, with the synchronisation indices at every tau-th step ("H" there and in Lin et al.);
tau = 1 with plain SGD is BSP. eta is that of any local optimizer; n_i are the samples behind x_i, so equal batches
give the paper's plain mean. w and x_i are flat float32 vectors; what travels is x_i - w.

Memory of the local optimizer: kept by default ("local momentum" of Lin et al., Section 4), which costs nothing;
`memory` says otherwise.

Use it where messages are dear and machines are alike. Not where one worker is slow: everybody waits for its tau steps
(see esync). A large tau lets workers with unlike data drift apart.
"""

from __future__ import annotations

from paceline.core.local.local_sgd import LocalWorker, memory_parameter
from paceline.core.scheme import Paper, Scheme, parameter, scheme


@scheme(
    "localsgd",
    summary="every worker trains tau steps on its own, then all average",
    paper=Paper(
        key="stich2019local",
        authors="Stich, Sebastian U.",
        title="Local SGD Converges Fast and Communicates Little",
        venue="International Conference on Learning Representations (ICLR)",
        year=2019,
        url="https://arxiv.org/abs/1805.09767",
    ),
)
class LocalSGD(Scheme):
    tau: int = parameter(8, "local steps between two averagings", low=1)
    memory: str = memory_parameter("keep")

    round_steps = "tau"
    needs_mean = True
    trains_locally = True
    lock_step = True

    Worker = LocalWorker
