"""Elastic averaging: workers keep their own weights, tied to a common centre by a spring.

Asynchronous, the centre on the servers:

    worker i:  repeat  x <- local steps from x;  send x;  x~ <- the answer;  x <- x - alpha (x - x~)
    server:    upon x:  answer x~;  x~ <- x~ + alpha_s (x - x~)

Synchronous, the same centre on every worker:

    worker i:  repeat  x_i <- local steps from x_i
                       (x_i, x~) <- (x_i - alpha (x_i - x~),  x~ + alpha_s sum_j (x_j - x~))     (one Mean over all)

`w` of a role is the centre x~, wherever it is kept. Each scheme says what its local steps are. (Zhang, Choromanska and
LeCun, "Deep Learning with Elastic Averaging SGD", NIPS 2015.)
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.core.effects import SERVERS, Call, Effect, Trained
from paceline.core.errors import ConfigError
from paceline.core.local.local_sgd import AVERAGE, Trainer, memory_parameter
from paceline.core.message import STATE, Nature, message
from paceline.core.paramserver.async_server import ArrivalServer
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme, parameter
from paceline.core.validation import bounds


@message("elastic.Replica")
class Replica:
    """Sends the weights `x` of a worker after `samples` samples; `clock` counts its exchanges from 1.

    Answered by Centre.
    """

    carries: ClassVar[Nature] = STATE

    x: bounds.Whole
    clock: bounds.Clock
    samples: bounds.Samples


@message("elastic.Centre")
class Centre:
    """Answers with the centre as it was before the replica moved it."""

    carries: ClassVar[Nature] = STATE

    w: bounds.Whole
    version: bounds.Count
    samples_seen: bounds.Count = 0


class ElasticWorker(Trainer):
    """The worker of the asynchronous form: it exchanges with the servers whenever it is done, and waits for no other
    worker.
    """

    private: ClassVar[tuple[str, ...]] = ("x",)
    transient: ClassVar[tuple[str, ...]] = ("alpha", "made")
    made: Trained | None = None  # local steps so far, where they are asked for one by one

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.x: Any = place.w
        self.alpha: float = scheme.moving_rate(len(place.workers))

    def local(self) -> Generator[Effect, Any, Trained]:
        """Makes the local steps, from `x`."""
        t = yield self.train(self.x, self.scheme.tau)
        return t  # type: ignore[no-any-return]

    def run(self) -> Generator[Effect, Any, None]:
        """Trains locally, then exchanges, again and again.

        What was trained is kept until the answer is there: a role that is begun anew pushes the same result again.
        """
        while True:
            if self.done is None:
                self.done = yield from self.local()
            yield from self.exchange()

    def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
        if self.done is None:
            self.done = self.made
        if self.done is not None:
            yield from self.exchange()

    def exchange(self) -> Generator[Effect, Any, None]:
        """Exchanges weights with the servers, and moves towards the centre."""
        assert self.done is not None
        replica = Replica(x=self.done.x, clock=self.round + 1, samples=self.done.samples)
        answer = yield Call(SERVERS, replica)
        self.w, self.samples_seen = answer.w, answer.samples_seen
        self.go_on_from(self.done.x - (self.done.x - self.w) * self.alpha)
        self.met()

    def met(self) -> None:
        super().met()
        self.made = None

    def go_on_from(self, x: Any) -> None:
        """Takes `x` as this worker's weights, or the centre where it is not finite."""
        self.x = x if self.is_sound(x) else self.w


class SynchronousWorker(ElasticWorker):
    """Keeps the centre itself, which moves once a round by the pull of all who take part; all workers compute the same
    centre.
    """

    common = ("round", "samples_seen")

    def exchange(self) -> Generator[Effect, Any, None]:
        """Makes one Mean of the distances x_i - x~, by which all move the same centre."""
        assert self.done is not None
        alpha_s = self.scheme.moving_rate(len(self.workers), of_centre=True)
        yield from self.average_memory()
        apart = self.done.x - self.w
        mean = yield self.mean(apart, 1.0)
        self.w = self.w + mean.v * (alpha_s * mean.weight)  # every weight is 1, so their sum is who took part
        self.go_on_from(self.done.x - apart * self.alpha)
        # Exact where batches are equal, which they are except where a share of the data ends.
        self.samples_seen += round(self.done.samples * mean.weight)
        self.met()


class ElasticServer(ArrivalServer):
    """Holds one slice of the centre.

    It answers with the centre as it was, so that both sides move by the same difference.
    """

    takes = Replica
    transient: ClassVar[tuple[str, ...]] = ("alpha",)

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.alpha: float = scheme.moving_rate(len(place.workers), of_centre=True)

    def apply(self, src: int, message: Replica) -> float:
        """Moves the centre towards a worker's weights; returns the weight of that contribution."""
        self.w = self.w + (message.x - self.w) * self.alpha
        return self.alpha

    def answer(self, src: int, before: Any) -> Centre:
        """Answers with the centre as it was before: worker and centre then move towards each other by as much."""
        return Centre(w=before, version=self.version, samples_seen=self.samples_seen)


@dataclass(frozen=True, kw_only=True)
class Elastic(Scheme):
    """Holds the parameters of this family. 0 stands for a default: `alpha` 0.9 / workers, `server_alpha` alpha."""

    tau: int = parameter(10, "local steps between two exchanges", low=1)
    alpha: float = parameter(0.0, "moving rate of a worker; 0: 0.9 / workers", low=0.0, high=1.0)
    server_alpha: float = parameter(0.0, "moving rate of the centre; 0: that of a worker", low=0.0, high=1.0)
    synchronous: bool = parameter(False, "everybody exchanges at once, and no servers are needed")
    memory: str = memory_parameter("keep")

    round_steps = "tau"

    Synchronous: ClassVar[type[Role]]

    Server = ElasticServer

    def moving_rate(self, workers: int, *, of_centre: bool = False) -> float:
        """Returns alpha of a worker, or of the centre; 0.9 / workers is the paper's choice (beta = 0.9)."""
        of_worker = self.alpha or 0.9 / workers
        return (self.server_alpha or of_worker) if of_centre else of_worker

    def check(self, workers: int, servers: int) -> None:
        """Raises ConfigError without servers, for memory that nobody can average, and for a moving
        rate that overshoots.
        """
        if servers == 0 and not self.synchronous:
            way_out = f"give --servers 1 or more, or --{self.name}.synchronous true"
            raise ConfigError(f"{self.name} keeps its centre on servers: {way_out}")
        if self.memory == AVERAGE and not self.synchronous:
            raise ConfigError(
                f"{self.name}.memory = 'average': asynchronous workers never meet, so there is nothing to average; "
                f"use keep or reset, or --{self.name}.synchronous true"
            )
        # The paper's beta = n alpha: above 1 the centre would overshoot the workers' mean in every round.
        beta = workers * self.moving_rate(workers, of_centre=True)
        if self.synchronous and beta > 1:
            raise ConfigError(
                f"{self.name}: {workers} workers together would pull the centre {beta:g} times as far as their mean; "
                f"take an alpha of at most {1 / workers:g} (1 / workers)"
            )

    @property
    def lock_step(self) -> bool:
        """Returns True for the synchronous form, in which all workers meet."""
        return self.synchronous

    def worker(self, servers: int) -> type[Role]:
        """Returns the worker's role, of the form that the parameters ask for."""
        return self.Synchronous if self.synchronous else self.Worker

    def server(self, servers: int) -> type[Role] | None:
        """Returns the server's role; None where workers average among themselves."""
        return None if self.synchronous or not servers else self.Server

    def natures(self, servers: int) -> tuple[set[Nature], set[Nature]]:
        """Returns what travels up and down: weights both ways."""
        return super().natures(servers) if self.server(servers) is None else ({STATE}, {STATE})

    def uses_mean(self, servers: int) -> bool:
        return self.synchronous
