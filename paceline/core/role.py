"""A role is one party of a scheme: the paper's loop box and its "upon receiving" box.

A driver calls a role from outside and never the other way round:

    run                    the loop: yields effects (`core/effects.py`), is resumed with their results
    on                     a message has arrived: returns the messages to send, and never waits
    on_worker_left,
    on_worker_joined       the membership has changed
    on_refused             a message of another worker was dropped
    on_rollback            servers went back to a snapshot
    last_exchange          the last one of a worker that ends: no more local work, but all else
    leave, finish          this worker, or this phase of the run, ends
    join_state,
    load_join_state        what a late joiner takes over from another worker
    join_late              others may be within a round
    state_dict,
    load_state_dict        what a server's snapshot keeps besides the weights
    state, load_state      what a checkpoint keeps besides the weights, and a resumed run goes on from
    whole                  whether that is all there is to keep, at this moment
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from paceline.core.effects import Data, Effect, Reply, Tell
from paceline.core.errors import Unexpected
from paceline.core.trace import Record


class Update(Protocol):
    """The rule that turns weights and a gradient into new weights: SGD, Adam, ..., with its state inside."""

    def __call__(self, w: Any, g: Any, samples: int) -> Any:
        """Returns new weights from `w` and the mean gradient `g` over `samples` samples; `w` itself stays as it is.

        `samples` moves the clock of the learning-rate schedule.
        """


@runtime_checkable
class Remembering(Update, Protocol):
    """An `Update` that may remember something of its calls, such as a momentum."""

    def reset(self) -> None:
        """Forgets everything, as if it had never been called; the clock of the schedule goes on."""


@runtime_checkable
class Phased(Update, Protocol):
    """An `Update` whose learning rate has a factor for each phase of the run (`Scheme.rate_share`)."""

    def enter_phase(self, phase: int) -> None:
        """Goes on at the rate of that phase."""


class GradientCheck(Protocol):
    """Says which contributions are fit to be used (`paceline.core.paramserver.gradient_check`)."""

    def push(self, now: float, rank: int, v: Any, onto: Any = None, waiting: Collection[int] = ()) -> str | None:
        """Returns why the contribution `v` of worker `rank` is rejected, or None.

        onto: the vector it is about to be added to. waiting: ranks that send nothing more before its round is over.
        Raises Diverged once nobody's numbers are finite any more.
        """

    def part(self, now: float, rank: int, v: Any, onto: Any = None) -> str | None:
        """Does the same for a worker's part of a mean."""

    def gone(self, rank: int) -> None:
        """Tells the check that a worker takes no further part."""

    def came(self, rank: int) -> None:
        """Tells the check that a worker takes part again."""


class OwnResultCheck(Protocol):
    """Hears of each result of a worker whether it is finite (`paceline.core.paramserver.peer_check.OwnResults`)."""

    def judged(self, *, finite: bool, mean: bool = False) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext:
    """Tells a role who it is, who else takes part, and what its driver lends it.

    me: rank of a worker, index of a shard, 0 for the coordinator.
    workers: the ranks that take part.
    w: the initial weights: all of them on a worker, its slice on a shard, nothing numeric on the coordinator.
    update: the optimizer that belongs to this party.
    seed: of the run. `Role.rng` draws from it, differently in each slice; draws of which all slices must make the same
    have a generator of their own from it.
    seconds_per_step: measured before the start, by rank; empty when nobody measured.
    note: takes trace records, in particular decisions with their reasons; None when no trace is written.
    gate: says which contributions are accepted, on a shard and on a worker that sums up what others send; None where
    all are.
    own: on a worker that judges its own results, hears of each; None where nobody counts them.
    rounds: on a shard, makes rounds with a robust mean, from their members; None where the plain mean is used.
    settled: on one shard of all, is told what became of contributions of leased data: rank, fate, which samples.
    samples_seen: samples that all workers trained before this run began (a resumed run begins above 0).
    refuses: counts a false claim that the role has found: a worker's rank, and what is wrong; None where nobody does.
    contributing: on a shard, is told before each update whose contributions it is made of.
    most_samples: the most samples one contribution can have, by the scheme and the plan; 0 where that is not known.
    offset, length: on a shard, the place of its first element in the model, and the elements of the whole model; 0 and
    0 where the shard is all of it.
    batch_limits: the largest batch of each worker, by rank, 0 for any; empty where nobody has one, and for all but the
    coordinator.
    hosts, sites: where each worker runs, by rank; empty where that is not known, sites also where all are at one.
    """

    me: int
    workers: tuple[int, ...]
    w: Any
    update: Update
    seed: int = 0
    seconds_per_step: tuple[float, ...] = ()
    note: Callable[[Record], None] | None = None
    gate: GradientCheck | None = None
    own: OwnResultCheck | None = None
    rounds: Callable[[Iterable[int]], Any] | None = None
    settled: Callable[[int, str, Data], None] | None = None
    samples_seen: int = 0
    refuses: Callable[[int, str], None] | None = None
    contributing: Callable[[Collection[int]], None] | None = None
    most_samples: int = 0
    offset: int = 0
    length: int = 0
    batch_limits: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()


class WorkCount(NamedTuple):
    """Counts steps, and the samples of their mini-batches."""

    steps: int
    samples: int


NO_WORK = WorkCount(0, 0)


class Role:
    """This class is one party of a scheme; each scheme overrides what its boxes need.

    `run` is resumed with the result of each effect it yields. It may be closed at any `yield` and started anew, so what
    must survive lives on `self`. `on` handles one message to its end and never waits. `self.w` is the model as this
    party knows it.

    common: names of the attributes that are equal on all workers, such as the number of the round; one vector at most.
    A late joiner takes them over, together with the model.
    servers_count: servers count what is common for each worker, so a newcomer may begin from any value.
    private: names of the vectors that this worker alone has, and that it goes on from.
    saved: names of further attributes that a resumed run goes on from: vectors as long as `w`, or values that JSON can
    hold. transient: names of those that begin anew: they follow from the scheme and the context, are measured, or
    belong to what is under way. Both add to those of the base classes, and every attribute that a role has is in one
    of these lists or in `state_dict` (`tests/core/test_role_state.py`).
    updates_alone: a worker's `update` sees its own gradients alone. It then remembers what nobody else has, and its
    driver tells its schedule how many samples all have seen.
    updates_meanwhile: a worker's `update` is also called while the worker computes, so it must not use the module.
    goes_back: the servers may go back to an earlier state while this role is in the middle of something. A worker's
    role then hears `on_rollback`, and its `run` starts anew; a server's has `state_dict`, and takes it up with
    `load_state_dict`.
    keeps_w: somebody may look at `w` at any time. Otherwise a role may release weights that it has used.
    samples_seen: how many samples of all workers were exchanged, as far as this party has heard. It is the clock of
    schedules that run on workers, and what a run by epochs in lock-step ends by. A role that hears nothing leaves it as
    it is.
    samples_ahead: samples of this worker that belong to a later exchange than the last that `samples_seen` counts.
    """

    common: ClassVar[tuple[str, ...]] = ()
    servers_count: ClassVar[bool] = False
    private: ClassVar[tuple[str, ...]] = ()
    saved: ClassVar[tuple[str, ...]] = ()
    transient: ClassVar[tuple[str, ...]] = ()
    updates_alone: ClassVar[bool] = False
    updates_meanwhile: ClassVar[bool] = False
    goes_back: ClassVar[bool] = False
    keeps_w = False
    samples_ahead = 0

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        self.scheme = scheme
        self.place = dataclasses.replace(place, w=None)  # the initial weights must not stay in memory for the whole run
        self.me = place.me
        self.workers = place.workers
        self.w: Any = place.w
        self.update = place.update
        self.note = place.note
        self.gate = place.gate
        self.samples_seen = place.samples_seen

    @functools.cached_property
    def rng(self) -> random.Random:
        """Draws this party's random numbers. It is made when first asked for: it takes 2.5 kB, and few schemes draw
        anything.
        """
        return random.Random(f"{self.place.seed}/{type(self).__qualname__}/{self.me}")

    def run(self) -> Generator[Effect, Any, None]:
        """The loop box: yields effects and is resumed with their results. A role without a loop has none."""
        yield from ()

    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """Handles `message` from `src` (the sender's rank) and returns the messages to send.

        `now` is this party's own monotonic clock in seconds. Raises Unexpected for a message that this role does not
        take.
        """
        raise Unexpected(f"{type(self).__qualname__} got {type(message).__name__}, which it does not take")

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Worker `rank` has left; if it ever comes back, it is as a newcomer."""
        yield from ()

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Worker `rank` takes part from now on: its next message comes from a fresh role."""
        yield from ()

    def on_refused(self, now: float, rank: int, message: Any) -> Iterator[Tell | Reply]:
        """Is called on a worker when `message` of worker `rank` was dropped; others may wait for what it had.

        Servers have such a worker expelled. Workers have nobody expelled, so it is still there.
        """
        yield from ()

    def on_evaluation(self, now: float, accuracy: float) -> Iterator[Tell | Reply]:
        """Is told at the coordinator that the model has been evaluated."""
        yield from ()

    def join_state(self) -> dict[str, Any]:
        """Returns what a late joiner takes over from this worker: vectors, and values that JSON can hold.

        The attribute that counts progress, a round or a clock, comes first: a newcomer follows the worker that is least
        far.
        """
        return {name: getattr(self, name) for name in self.common}

    def load_join_state(self, shown: Mapping[str, Any]) -> None:
        """This worker joins late: takes over what another one has `shown`, which is common to all."""
        for name in self.common:
            if name in shown:  # a checkpoint of an older version may lack an attribute that was added since
                setattr(self, name, shown[name])

    def join_late(self) -> None:
        """Prepares for a join in the middle of a run, after `load_join_state`: others may be within a round, and end it
        without what this worker would train for it.
        """

    @staticmethod
    def progress_key(shown: Mapping[str, Any]) -> list[int]:
        """Returns the numbers by which `join_state`s are compared: the smallest belongs to the worker that is least
        far.
        """
        return [value for value in shown.values() if isinstance(value, int)]

    def progress(self) -> int:
        """Returns the number that counts this worker's progress, a round or a clock; 0 where there is none."""
        return next(iter(self.progress_key(self.join_state())), 0)

    def on_rollback(self) -> None:
        """The servers went back to an earlier state: forgets what depends on the state that was lost."""

    def state_dict(self) -> dict[str, Any]:
        """Returns what a server must keep together with its weights, as values that JSON can hold."""
        return {}

    def load_state_dict(self, tables: dict[str, Any]) -> None:
        """Puts a newly made server into the state that `tables` were taken of; its weights are already those of that
        time.
        """

    @property
    def whole(self) -> bool:
        """Returns True if nothing is under way: `run`, begun anew from what this worker's role keeps, asks for the very
        work that it asks for now.

        A role that has more in its `run` than on `self`, or waits for an exchange while it works, says where that ends.
        """
        return True

    def state(self) -> dict[str, Any]:
        """Returns what a resumed run goes on from besides `w` and `common`, by name: vectors as long as `w`, and values
        that JSON can hold. What is None is left out.
        """
        names = (*self.private, *declared(type(self), "saved"))
        return {name: found for name in names if (found := getattr(self, name)) is not None}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state` returned in an earlier run; this role has just been made.

        A checkpoint of an older version lacks what is kept since.
        """
        for name in (*self.private, *declared(type(self), "saved")):
            if name in state:
                setattr(self, name, state[name])

    def go_on_at(self, clock: int) -> None:
        """Goes on with the clock that the servers of a resumed run know of this worker, where they know any."""

    def held_work(self) -> WorkCount:
        """Returns what this worker has handed to another worker that no server and no mean has yet."""
        return NO_WORK

    def held_alone(self) -> WorkCount:
        """Returns what this worker has handed to itself, since it speaks for others: it is lost with this worker."""
        return NO_WORK

    def lost_work(self) -> WorkCount:
        """Returns what of this worker's work was lost with others that held it, so far."""
        return NO_WORK

    def samples_waiting(self) -> int:
        """Returns how many samples a server has received gradients of that are neither in an update yet nor dropped."""
        return 0

    def last_exchange(self, *, soon: bool = False) -> Generator[Effect, Any, None]:
        """Hands over what this worker has trained and not exchanged yet, before it leaves.

        A driver runs it in place of `run`, which it has closed at a `Compute` or `Train`. It may yield everything but
        these two effects, and wait for others. `soon`: the process ends before the run does, so it may not wait until
        others end. A role whose `run` keeps nothing back from one piece of local work to the next has nothing to do.
        """
        yield from ()

    def leave(self, now: float) -> Iterator[Tell | Reply]:
        """This worker takes no further part. Its `on` still hears what others tell it; their Calls are lost."""
        yield from ()

    def finish(self, now: float) -> Iterator[Tell | Reply]:
        """The phase of the run that this role belongs to is over. Rounds that wait for more contributions become
        updates now.
        """
        yield from ()

    def model(self) -> tuple[Any, float]:
        """Returns the model as this party knows it, and its weight in a mean over the workers."""
        return self.w, 1.0


def declared(role: type[Role], what: str) -> tuple[str, ...]:
    """Returns the names that a class and its base classes list under `what`, which is "saved" or "transient"."""
    return tuple(dict.fromkeys(name for cls in reversed(role.__mro__) for name in vars(cls).get(what, ())))


def named_under(head: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of a role that another one has inside, by names that begin with `head`."""
    return {f"{head}.{name}": value for name, value in state.items()}


def found_under(head: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `named_under` was made of."""
    return {name.removeprefix(f"{head}."): value for name, value in state.items() if name.startswith(f"{head}.")}
