"""Post-local SGD: synchronous at first, local SGD once the model has found its valley.

    worker i:  repeat  x_i <- w
                       H(t) times:  x_i <- x_i - eta grad f_i(x_i)
                       w <- sum(n_i x_i) / sum(n_i)                    (one Mean over all)

    H(t) = 1 if t <= t', else tau        t counts the steps of a worker, or the samples of all of them

Lin et al. (ICLR 2020), Section 3; in their experiments t' is the first decay of the learning rate. One local step and
an average are a step of BSP, also with momentum: all workers start it at the same w, and the mean of their momenta
follows BSP's. (Exactly so for SGD and equal batches; not for Adam.) Everybody switches at the same round, because t is
counted in rounds, or in the samples that the Mean reports to all.

Memory of the local optimizer: kept by default, the "local momentum" of the paper, Section 4.

Use it for large batches, where local SGD from the start costs accuracy. Before the switch it costs what BSP costs.
"""

from __future__ import annotations

from paceline.core.local.local_sgd import LocalWorker, memory_parameter
from paceline.core.role import Role
from paceline.core.scheme import Paper, Scheme, parameter, scheme


def parse_switch(text: str) -> tuple[int, str]:
    """`"500 steps"` -> (500, "steps"). Raises ValueError for anything but a number of steps or samples."""
    number, _, unit = text.partition(" ")
    if unit not in ("steps", "samples") or not number.isdecimal():
        raise ValueError("write '500 steps' (of each worker) or '64000 samples' (of all workers)")
    return int(number), unit


@scheme(
    "postlocal",
    summary="synchronous first, then tau local steps between averagings",
    paper=Paper(
        key="lin2020dont",
        authors="Lin, Tao and Stich, Sebastian U. and Patel, Kumar Kshitij and Jaggi, Martin",
        title="Don't Use Large Mini-Batches, Use Local SGD",
        venue="International Conference on Learning Representations (ICLR)",
        year=2020,
        url="https://arxiv.org/abs/1808.07217",
    ),
)
class PostLocal(Scheme):
    tau: int = parameter(8, "local steps between two averagings, after the switch", low=1)
    switch: str = parameter("200 steps", "t': when to switch, as 'N steps' or 'N samples'", check=parse_switch)
    memory: str = memory_parameter("keep")

    needs_mean = True
    trains_locally = True
    lock_step = True

    def unseen(self, worker: Role) -> str:
        assert isinstance(worker, LocalWorker)
        return "" if worker.steps() == self.tau else f"{self.tau} local steps a round, after {self.switch}"

    class Worker(LocalWorker):
        def steps(self) -> int:
            t_switch, unit = parse_switch(self.scheme.switch)
            t = self.round if unit == "steps" else self.samples_seen
            return 1 if t < t_switch else int(self.scheme.tau)
