"""EAMSGD adds Nesterov's momentum at the workers to elastic averaging.

    worker i:  repeat  if tau divides t_i:  x_i <- x_i - alpha (x_i - x~);  x~ <- x~ + alpha (x_i - x~)
                       v_i <- delta v_i - eta g_i(x_i + delta v_i)
                       x_i <- x_i + v_i;  t_i <- t_i + 1

Zhang et al. (NIPS 2015), Algorithm 2. delta: momentum (0.99 there); v_i starts at zero; the rest is as in easgd: the
centre x~ is what is evaluated and saved, and there is a synchronous variant.

The momentum belongs to the scheme. So the worker asks for single gradients, at x_i + delta v_i, and the optimizer,
which shall be without momentum of its own, only turns g into the step -eta g: a live run sets its momentum to 0.

Memory, which is v_i here: kept by default, as in the paper; `reset` sets v_i to zero at an exchange; `average`
needs the synchronous variant.

Use it where easgd is steady but slow. A large delta wants a small eta: a step counts 1 / (1 - delta) times.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from paceline.core.effects import KEEP, Compute, Effect, Trained
from paceline.core.local.elastic_averaging import Elastic, ElasticWorker, SynchronousWorker
from paceline.core.role import Remembering
from paceline.core.scheme import Paper, parameter, scheme
from paceline.core.spans import updated


class _Nesterov(ElasticWorker):
    private = ("x", "start")
    updates_alone = True

    @property
    def whole(self) -> bool:
        return self.made is None

    def local(self) -> Generator[Effect, Any, Trained]:
        x, v, samples, seconds = self.x, self.v(), 0, 0.0
        for _ in range(self.scheme.tau):
            ahead = x if v is None else x + v * self.scheme.delta
            c = yield Compute(ahead)
            moved = updated(self.update, ahead, c.g, c.samples, c.unused)  # x + delta v - eta g, which is x + the new v
            x, v = moved, moved - x
            samples, seconds = samples + c.samples, seconds + c.seconds
            self.made = Trained(x, samples, seconds, v)
        assert self.made is not None
        return self.made

    def v(self) -> Any:
        return None if isinstance(self.start, str) else self.start

    def is_sound(self, x: Any) -> bool:
        assert self.done is not None
        sound = super().is_sound(x)
        if sound and self.scheme.memory == KEEP:
            self.start = self.done.memory
        if not sound and isinstance(self.update, Remembering):
            self.update.reset()
        return sound


class _SynchronousNesterov(SynchronousWorker, _Nesterov):
    pass


@scheme(
    "eamsgd",
    summary="elastic averaging with Nesterov momentum at the workers",
    paper=Paper(
        key="zhang2015deep",
        authors="Zhang, Sixin and Choromanska, Anna and LeCun, Yann",
        title="Deep learning with Elastic Averaging SGD",
        venue="Advances in Neural Information Processing Systems 28",
        year=2015,
        url="https://arxiv.org/abs/1412.6651",
    ),
)
class EAMSGD(Elastic):
    delta: float = parameter(0.9, "momentum of a worker", low=0.0, high=0.999)

    own_momentum = True

    Worker = _Nesterov
    Synchronous = _SynchronousNesterov
