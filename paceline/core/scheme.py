"""A scheme joins a name, a paper, a few parameters and the roles of the paper's boxes; a registry knows all of them.

    @scheme("ssp", summary="...", paper=Paper(...))
    class SSP(Scheme):
        staleness: int = parameter(3, "how many clocks a worker may run ahead", low=0)
        Worker = ClockedWorker
        class Server(ClockedServer): ...

The class says what the drivers and the command line must know of a scheme before it runs: which flags it has, whether
it needs servers or peers, whose weights are the model, whether it counts samples in lock-step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, dataclass_transform, get_type_hints

from paceline.core.errors import ConfigError
from paceline.core.message import INCREMENT, STATE, Nature, nature_of
from paceline.core.registry import Registry, nearest
from paceline.core.role import Role

S = TypeVar("S", bound="type[Scheme]")
ModelOf = Literal["servers", "any worker", "mean of workers"]
"""Whose weights are the model that is evaluated and saved."""


class RateShare(NamedTuple):
    """Says what an update is, measured by a round of all workers, which is one update of bsp.

    share: 1 where an update weighs as much; 1 / n where n workers make n updates of one contribution each.
    why: the reason, as the rest of a sentence that begins with the scheme's name; "" where the share is 1.
    """

    share: float
    why: str


WHOLE_ROUND = RateShare(1.0, "")
EXCHANGES_MIN = 10
"""Exchanges that a run has at least, by the parameters that nobody has given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The reference of a scheme: `paceline cite` prints it as BibTeX, `paceline schemes` its short form."""

    key: str
    authors: str
    title: str
    venue: str
    year: int
    url: str = ""

    def short(self) -> str:
        """Returns the first author and the year, as a table has room for."""
        first = self.authors.split(" and ")[0].split(",")[0]
        return f"{first} et al. {self.year}" if " and " in self.authors else f"{first} {self.year}"

    def bibtex(self) -> str:
        """Returns a BibTeX entry."""
        lines = [
            f"  author = {{{self.authors}}}",
            f"  title = {{{self.title}}}",
            f"  booktitle = {{{self.venue}}}",
        ]
        lines.append(f"  year = {{{self.year}}}")
        if self.url:
            lines.append(f"  url = {{{self.url}}}")
        return f"@inproceedings{{{self.key},\n" + ",\n".join(lines) + "\n}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Says what a parameter means and which values it takes.

    file: the value may also be given as file:PATH. links: also as links:CLUSTER, groups by the links of a cluster file.
    """

    help: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    check: Callable[[Any], Any] | None = None
    file: bool = False
    links: bool = False

    def refuse(self, value: Any) -> str | None:
        """Returns why `value` is not allowed, or None."""
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if isinstance(value, int | float) and not self.low <= value <= self.high:
            return f"must lie between {self.low:g} and {self.high:g}"
        if self.check is not None:
            try:
                self.check(value)
            except ValueError as error:
                return str(error)
        return None


def parameter(default: Any, help: str, **limits: Any) -> Any:
    """Declares a field of a scheme: its default, a sentence for `--help`, and `low`, `high`, `choices` or `check`."""
    return dataclasses.field(default=default, metadata={"limits": Limits(help=help, **limits)})


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """All schemes derive from this class. Its fields are its parameters; a value out of range raises ConfigError.

    Worker, Server, Coordinator: the roles. A scheme without a Server keeps the model on its workers.
    Equals: the worker's role when there are no servers, for schemes that also run on collectives alone.
    needs_mean: the worker yields `Mean`.
    means_at_once: at most so many of them are under way.
    trains_locally: it yields `Train`, so the optimizer lives on the worker.
    needs_peers: workers send messages to one another.
    own_momentum: the worker's role has a momentum of its own, so its `update` must have none.
    whole_rounds: an update is the mean of one contribution of each worker, all computed on the same weights.
    workers_differ: each worker has a model of its own, and that of the run is their mean, weighted by `Role.model`.
    local_optimizer: the optimizer of the local steps, where a run names none; "" for the usual one.
    mixes_steps: an update may be made of gradients of different steps of the workers' loops, or steps differ in size.
    sizes_batches: it says how large each worker's batches are, so a step counts as many samples as its batch has items.
    composite: it is made of other schemes, and cannot be a part of one that is.
    round_steps: the parameter that has the local steps between two exchanges, where short runs need fewer; "" for none.
    few_steps: a run of fewer steps of each worker is a short one, for the reason beside the number.
    coordinator_counts: the coordinator has a part of the state, which no worker could keep.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[Paper]
    Worker: ClassVar[type[Role]]
    Server: ClassVar[type[Role] | None] = None
    Coordinator: ClassVar[type[Role] | None] = None
    Equals: ClassVar[type[Role] | None] = None
    needs_mean: ClassVar[bool] = False
    means_at_once: ClassVar[int] = 1
    needs_peers: ClassVar[bool] = False
    own_momentum: ClassVar[bool] = False
    whole_rounds: ClassVar[bool] = False
    workers_differ: ClassVar[bool] = False
    local_optimizer: ClassVar[str] = ""
    mixes_steps: ClassVar[bool] = False
    sizes_batches: ClassVar[bool] = False
    composite: ClassVar[bool] = False
    round_steps: ClassVar[str] = ""
    few_steps: ClassVar[tuple[int, str]] = (0, "")
    coordinator_counts: ClassVar[bool] = False

    @property
    def trains_locally(self) -> bool:
        """Returns True if workers make local steps with an optimizer of their own."""
        return False

    @property
    def codec(self) -> str:
        """Returns the codec of what workers send where the run names none; "" for none."""
        return ""

    @property
    def one_gate(self) -> bool:
        """Returns True if shard 0 alone holds workers back. A server's shard is then not cut into slices."""
        return False

    @property
    def answers_early(self) -> bool:
        """Returns True if a contribution is answered before it is part of an update.

        A server that fails then loses contributions that were answered.
        """
        return False

    @property
    def answers_what_no_copy_has(self) -> bool:
        """Returns True if some shard answers before the copy of its state is safe on another server.

        Besides schemes that answer early these are those with one gate: their other shards hold nobody back.
        """
        return self.answers_early or self.one_gate

    def __post_init__(self) -> None:
        for name, limits in limits_of(type(self)).items():
            refused = limits.refuse(getattr(self, name))
            if refused:
                raise ConfigError(f"{self.name}.{name} = {getattr(self, name)!r}: {refused}")

    def check(self, workers: int, servers: int) -> None:
        """Raises ConfigError, naming the way out, when this scheme cannot run on such a cluster."""
        if servers == 0 and self.Server is not None and self.Equals is None:
            raise ConfigError(f"{self.name} keeps its model on servers: give --servers 1 or more")

    def check_batch_limits(self, limits: Sequence[int]) -> None:
        """Raises ConfigError where this scheme cannot keep to the largest batches of the workers, by rank (0: any)."""
        if self.lock_step and not self.total_is_exact and len(set(limits)) > 1:
            raise ConfigError(
                f"--batch-limits {','.join(map(str, limits))}: {self.name} takes the batches of all workers to be "
                "equal: give one limit for all, or another scheme, such as lbbsp"
            )

    def most_samples(self, batch: int, workers: int) -> int:
        """Returns the most samples that one contribution may have, given the workers' own mini-batches of `batch`; 0:
        unknown.
        """
        return 0

    def max_ahead(self) -> int | None:
        """Returns how many exchanges a worker may be ahead of the slowest one when it is let go; None where nothing
        bounds it.
        """
        return None

    def rate_share(self, workers: int) -> RateShare:
        """Returns how much one update weighs among those that `workers` workers make while each contributes once.

        The learning rate of updates follows from it (`runtime/spec/rate_scale.py`). Local steps keep the user's rate.
        """
        return WHOLE_ROUND

    def in_turn(self) -> tuple[Scheme, ...]:
        """Returns the schemes of a run one after the other: this one alone, unless it is made of phases."""
        return (self,)

    def worker(self, servers: int) -> type[Role]:
        """Returns the worker's box on a cluster with that many servers."""
        return self.Equals if servers == 0 and self.Equals is not None else self.Worker

    def server(self, servers: int) -> type[Role] | None:
        """Returns the server's role on a cluster with that many servers; None where the model is not on servers."""
        return self.Server if servers else None

    def model_of(self, servers: int) -> ModelOf:
        """Returns whose weights are evaluated and saved."""
        if self.server(servers) is not None:
            return "servers"
        return "mean of workers" if self.workers_differ else "any worker"

    def nature(self, message: type) -> Nature:
        """Returns what the vectors of this class of messages are in this scheme."""
        return nature_of(message)

    def natures(self, servers: int) -> tuple[set[Nature], set[Nature]]:
        """Returns what kinds of vectors workers send while it runs, and what kinds servers send. Codecs are chosen by
        it.
        """
        means: set[Nature] = {INCREMENT} if self.uses_mean(servers) else set()
        if self.server(servers) is None:
            return ({STATE, INCREMENT} if self.needs_peers else means), means
        return means | {INCREMENT}, means | {STATE}

    def connects_workers(self, servers: int) -> bool:
        """Returns True if workers must reach one another, while they train or for the mean of their
        models at the end.
        """
        return self.needs_peers or self.model_of(servers) == "mean of workers"

    def unseen(self, worker: Role) -> str:
        """Returns what of this scheme a run has not reached that ended with `worker` as it is; "" for schemes that
        never change.

        `hybrid` names the phases that did not begin, `postlocal` the local steps that it did not come to.
        """
        return ""

    def completed(self, sections: Mapping[str, Mapping[str, Any]], train_samples: int) -> Scheme:
        """Returns this scheme, given the parameters of all schemes by name and the samples of an epoch (0: not known).

        Only schemes made of others need them.
        """
        return self

    def for_run(self, steps: int, given: Collection[str]) -> Scheme:
        """Returns this scheme for a run of `steps` steps of each worker; parameters that the user has `given` stay.

        Rounds are shortened until the run has EXCHANGES_MIN of them: outer steps, elastic forces and error feedback act
        once an exchange, and after two or three the model is still near the one that the run began with.
        """
        fitting = max(1, steps // EXCHANGES_MIN)
        if not self.round_steps or self.round_steps in given or getattr(self, self.round_steps) <= fitting:
            return self
        return self.with_round(fitting, given)

    def with_round(self, steps: int, given: Collection[str]) -> Scheme:
        """Returns this scheme with so many local steps between two exchanges, fewer than it has."""
        return dataclasses.replace(self, **{self.round_steps: steps})

    def with_whole_updates(self) -> Scheme:
        """Returns this scheme in the form in which a party that sees the whole gradient makes every update, if it has
        one.

        A limit on the norm of the whole gradient needs it, because a server sees its own slices alone.
        """
        return self

    @property
    def computes(self) -> bool:
        """Returns True if the worker yields `Compute`."""
        return not self.trains_locally

    def uses_mean(self, servers: int) -> bool:
        """Returns True if workers average among themselves, with that many servers."""
        return self.needs_mean or (servers == 0 and self.Equals is not None)

    @property
    def lock_step(self) -> bool:
        """Returns True if all workers make the same exchanges, and each knows after an exchange how many samples all
        trained.
        """
        return False

    @property
    def total_is_exact(self) -> bool:
        """Returns True if, in lock-step, that number holds whatever batches the others have; otherwise each takes them
        to have as many samples as its own.
        """
        return self.lock_step

    @property
    def equal_rounds(self) -> bool:
        """Returns True if, in lock-step, all workers train the same number of samples for an exchange."""
        return self.lock_step

    def in_step(self, servers: int) -> bool:
        """Returns True if somebody waits until all workers have made as many exchanges, so one that made fewer delays
        them.
        """
        return self.uses_mean(servers)

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters by name, as they were given or by default."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


_registry: Registry[Scheme] = Registry("scheme")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(parameter,))
def scheme(name: str, *, summary: str, paper: Paper) -> Callable[[S], S]:
    """Class decorator: makes the class a frozen dataclass and enters it into the registry under `name`."""

    def enter(cls: S) -> S:
        """Enters the class in the registry; a later one of the same name takes its place."""
        return _registry.enter(cls, name, summary, paper)  # type: ignore[no-any-return]

    return enter


def names() -> list[str]:
    """Returns the names of all schemes, in order."""
    return _registry.names()


def lookup(name: str) -> type[Scheme]:
    """Returns the scheme class of that name. Raises ConfigError with the nearest name when there is none."""
    return _registry.lookup(name)


def limits_of(cls: type) -> dict[str, Limits]:
    """Returns the limits of each parameter, by name."""
    return {f.name: f.metadata["limits"] for f in dataclasses.fields(cls) if "limits" in f.metadata}


_types: dict[type, Mapping[str, type]] = {}
"""A cache: finding the types of a scheme takes 0.5 ms, and a fuzzer makes every scheme for every seed."""


def types_of(cls: type) -> Mapping[str, type]:
    """Returns the type of each parameter."""
    if cls not in _types:
        hints = get_type_hints(cls)
        _types[cls] = {name: hints[name] for name in limits_of(cls)}
    return _types[cls]


def make(name: str, parameters: dict[str, Any]) -> Scheme:
    """Builds a scheme from its parameters.

    Raises ConfigError for an unknown name, an unknown parameter or a bad value.
    """
    cls = lookup(name)
    known = types_of(cls)
    for key in parameters:
        if key not in known:
            raise ConfigError(f"scheme {name} has no parameter {key!r}{nearest(key, known)}")
    return cls(**{key: _coerce(f"{name}.{key}", value, known[key]) for key, value in parameters.items()})


def _coerce(label: str, value: Any, wanted: type) -> Any:
    """Returns `value` as the type `wanted`: an int may stand for a float, but a bool never for a number."""
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ConfigError(f"{label} = {value!r}: must be {wanted.__name__}, not {type(value).__name__}")
    return value
