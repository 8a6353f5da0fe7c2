"""A role is one party of a scheme: the paper's loop box and its "upon receiving" box."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from paceline.core.effects import Data, Effect, Reply, Tell
from paceline.core.errors import Unexpected
from paceline.core.trace import Record


class Update(Protocol):
    """The rule that turns weights and a gradient into new weights: SGD, Adam, ..., with its state inside."""

    def __call__(self, w: Any, g: Any, samples: int) -> Any:
        """New weights from `w` and the mean gradient `g` over `samples` samples; `w` itself stays as it is.

        `samples` moves the clock of the learning-rate schedule.
        """


@runtime_checkable
class Remembering(Update, Protocol):
    """An `Update` that may remember something of its calls, such as a momentum."""

    def reset(self) -> None:
        """Remember nothing, as if it had never been called; the clock of the schedule goes on."""


class GradientCheck(Protocol):
    """Says which contributions are fit to be used (`paceline.core.paramserver.gradient_check`)."""

    def push(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """Why what worker `rank` has pushed does not count, or None. onto: what it is about to be added to.

        Raises Diverged once nobody's numbers are finite any more.
        """

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """The same of a part of a mean."""

    def gone(self, rank: int) -> None:
        """Worker `rank` takes no further part."""

    def came(self, rank: int) -> None:
        """It takes part again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext:
    """Where a role stands: who it is, who else takes part, and what its driver lends it.

    me: rank of a worker, index of a shard, 0 for the coordinator.
    workers: the ranks that take part.
    w: the initial weights: all of them on a worker, its slice on a shard, nothing numeric on the coordinator.
    update: the optimizer that belongs to this party.
    seconds_per_step: measured before the start, by rank; empty when nobody measured.
    note: takes trace records, in particular decisions with their reasons; None when nobody listens.
    gate: on a shard, says which contributions are fit to be used; None where all are.
    rounds: on a shard, makes rounds with a mean of their own, from their members; None where the mean is the plain one.
    settled: on one shard of all, hears what became of contributions of leased data: rank, fate, which samples.
    samples_seen: by all workers before this run began.
    contributing: on a shard, hears before each update of whose contributions it is made.
    most_samples: of one contribution, by the scheme and the plan; 0 where nobody knows.
    """

    me: int
    workers: tuple[int, ...]
    w: Any
    update: Update
    seed: int = 0
    seconds_per_step: tuple[float, ...] = ()
    note: Callable[[Record], None] | None = None
    gate: GradientCheck | None = None
    rounds: Callable[[Iterable[int]], Any] | None = None
    settled: Callable[[int, str, Data], None] | None = None
    samples_seen: int = 0
    contributing: Callable[[Collection[int]], None] | None = None
    most_samples: int = 0


class Role:
    """One party of a scheme.

    `run` is resumed with the result of each effect it yields. It may be closed at any `yield` and started anew,
    so what must survive lives on `self`. `on` handles one message to its end and never waits. `gone` says that a
    worker takes no further part, `came` that one comes (back). `self.w` is the model as this party knows it.

    common: names of the attributes that are equal on all workers, such as the number of the round; one vector at most.
    A worker that comes late takes them over, together with the model.
    servers_count: do servers count what is common for each worker, so that a newcomer may begin from anywhere?
    private: names of the vectors that this worker alone has, and that it goes on from.
    updates_alone: does a worker's `update` see its own gradients alone? It then remembers what nobody else has, and its
    driver tells its schedule what all have seen.
    goes_back: may the servers go back to an earlier state while this box is in the middle of something? A worker's box
    then hears `undone`, and its `run` starts anew; a server's has `tables`, and takes them up with `restore`.
    keeps_w: may somebody look at `w` at any time? Otherwise a box may let go of weights that have served.
    samples_seen: how many samples of all workers were exchanged, as far as this party has heard: the clock of schedules
    that run on workers, and what a run by epochs ends by in lock-step. A box that hears nothing leaves it as it is.
    samples_ahead: of this worker's own, those of a later exchange than the last that it counts there.
    """

    common: ClassVar[tuple[str, ...]] = ()
    servers_count: ClassVar[bool] = False
    private: ClassVar[tuple[str, ...]] = ()
    updates_alone: ClassVar[bool] = False
    goes_back: ClassVar[bool] = False
    keeps_w = False
    samples_ahead = 0

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.scheme = scheme
        self.place = dataclasses.replace(place, w=None)  # lest the initial weights take room as long as the run lasts
        self.me = place.me
        self.workers = place.workers
        self.w: Any = place.w
        self.update = place.update
        self.note = place.note
        self.gate = place.gate
        self.samples_seen = place.samples_seen

    @functools.cached_property
    def rng(self) -> random.Random:
        """This party's own. Made when it is first asked for: it takes 2.5 kB, and few schemes draw anything."""
        return random.Random(f"{self.place.seed}/{type(self).__qualname__}/{self.me}")

    def run(self) -> Generator[Effect, Any, None]:
        yield from ()

    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """`now` is this party's own monotonic clock in seconds; `src` is the sender's rank."""
        raise Unexpected(f"{type(self).__qualname__} got {type(message).__name__} and has no use for it")

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Worker `rank` has left; if it ever comes back, it is as a newcomer."""
        yield from ()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Worker `rank` takes part from now on: its next message comes from a fresh role."""
        yield from ()

    def on_evaluation(self, now: float, accuracy: float) -> Iterator[Tell | Reply]:
        """The coordinator hears that the model has been evaluated."""
        yield from ()

    def join_state(self) -> dict[str, Any]:
        """What a worker that comes late takes over from this one: vectors, and what JSON can say.

        What counts how far it is, its round or its clock, comes first: a newcomer follows the one that is least far.
        """
        return {name: getattr(self, name) for name in self.common}

    def load_join_state(self, shown: Mapping[str, Any]) -> None:
        """This worker comes late: take over what another one has `shown`, which is common to all."""
        for name in self.common:
            if name in shown:  # an older checkpoint may lack what is counted by now
                setattr(self, name, shown[name])

    @staticmethod
    def progress_key(shown: Mapping[str, Any]) -> list[int]:
        return [value for value in shown.values() if isinstance(value, int)]

    def on_rollback(self) -> None:
        """The servers went back to an earlier state: forget what rests on the one that there was."""

    def state_dict(self) -> dict[str, Any]:
        """Of a server: what JSON can say of all that has to be kept with the weights."""
        return {}

    def load_state_dict(self, tables: dict[str, Any]) -> None:
        """Of a server that has just been made, with the weights of that time: be what `tables` were taken of."""

    def samples_waiting(self) -> int:
        """Of a server: how many samples it has heard of that are in no update yet, nor dropped."""
        return 0

    def leave(self, now: float) -> Iterator[Tell | Reply]:
        """This worker takes no further part. Its `on` still hears what others tell it; their Calls are lost."""
        yield from ()

    def finish(self, now: float) -> Iterator[Tell | Reply]:
        """The phase of the run that this box is for is over. Nobody shall wait here; what waits for more counts now."""
        yield from ()

    def model(self) -> tuple[Any, float]:
        """The model as this party knows it, and what that counts in a mean over the workers."""
        return self.w, 1.0
