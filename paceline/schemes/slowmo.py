"""SlowMo: local SGD whose averages are the gradients of a second, slow momentum.

    worker i:  repeat  x_i <- x
                       tau times:  x_i <- x_i - gamma d_i              (d_i: direction of any local optimizer)
                       x' <- sum(n_i x_i) / sum(n_i)                   (one Mean over all)
                       u <- beta u + (x - x') / gamma
                       x <- x - alpha gamma u

Wang et al. (ICLR 2020), Algorithm 1. gamma is the local (fast) learning rate, alpha the slow one, beta the slow
momentum; u starts at zero. alpha = 1, beta = 0 is local SGD. Every worker keeps the same u.

What is kept is m = -gamma u, so that no worker needs to know gamma: m <- beta m + (x' - x), x <- x + alpha m. Under
a schedule the paper's m would be scaled by gamma_t / gamma_(t-1) as well; here it is not.

Memory of the local optimizer: the paper allows all three strategies; reset is the default here, because the slow
momentum already carries what the buffers would.

Use it wherever local SGD fits; it costs one vector more a worker. With beta near 1 it needs a smaller alpha: in the
long run a round moves alpha / (1 - beta) times as far.
"""

from __future__ import annotations

from typing import Any

from paceline.core.collective.mean_server import Averaged
from paceline.core.local.local_sgd import LocalWorker, memory_parameter
from paceline.core.scheme import Paper, Scheme, parameter, scheme


@scheme(
    "slowmo",
    summary="local SGD with a slow momentum over the averages",
    paper=Paper(
        key="wang2020slowmo",
        authors="Wang, Jianyu and Tantia, Vinayak and Ballas, Nicolas and Rabbat, Michael",
        title="SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum",
        venue="International Conference on Learning Representations (ICLR)",
        year=2020,
        url="https://arxiv.org/abs/1910.00643",
    ),
)
class SlowMo(Scheme):
    tau: int = parameter(12, "local steps between two averagings", low=1)
    beta: float = parameter(0.5, "slow momentum", low=0.0, high=0.999)
    alpha: float = parameter(1.0, "slow learning rate", low=0.0)
    memory: str = memory_parameter("reset")

    round_steps = "tau"
    needs_mean = True
    trains_locally = True
    lock_step = True

    class Worker(LocalWorker):
        common = ("round", "samples_seen", "m")
        m: Any = None

        def outer(self, mean: Averaged) -> Any:
            self.m = mean.v if self.m is None else self.m * self.scheme.beta + mean.v
            return self.w + self.m * self.scheme.alpha
