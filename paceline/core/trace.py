"""Typed records of what happened, the same from a live run and from the simulator.

Every record is one line of `trace.jsonl`: `{"kind": <class name in lower case>, ...fields}`, without the fields that
are as they are by default. `at` is seconds since training started, on the clock of the party that wrote it; no two
parties' clocks are ever subtracted.

On its way to who writes that file a record is a row: its kind, and the values of all its fields in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from paceline.core.message import keyword_record


@keyword_record
class Record:
    """Base of all trace records."""

    at: float


@keyword_record
class Span(Record):
    """A worker spent `seconds`, ending at `at`, on one activity: computing, waiting or communicating.

    hidden: seconds in which bytes moved, besides, while it was busy with something else. exchanges: 1 where there was
    an exchange since the step before, 0 where the worker went on alone. A thinned trace has sums of several spans, all
    of a worker's ending at the same moment, one after the other.
    """

    rank: int
    activity: str
    seconds: float
    steps: int = 0
    samples: int = 0
    hidden: float = 0.0
    exchanges: int = 0


@keyword_record
class Applied(Record):
    """Shard `shard` applied an update made of the contributions of `ranks`, giving `version`.

    `staleness` counts versions applied between the weights the contribution was computed on and this update;
    `weight` is what the staleness weighting made of it.
    """

    shard: int
    ranks: tuple[int, ...]
    version: int
    staleness: int
    weight: float
    samples: int


NOT_SAVED = "not saved"
"""The verdict of a Decision about a checkpoint that could not be written."""


@keyword_record
class Decision(Record):
    """`party` decided `verdict` about worker `rank`, because of `reason`; written when the verdict changes.

    whom: the workers that this one waits for, if it waits, the scheme knows them and they are not too many to name.
    """

    party: str
    rank: int
    verdict: str
    reason: str
    whom: tuple[int, ...] = ()


@keyword_record
class Gated(Record):
    """Shard `shard` found fault with contribution `number`, from 1, of worker `rank`.

    One that is `refused` counts nothing.
    """

    shard: int
    rank: int
    number: int
    refused: bool
    reason: str


@keyword_record
class Evaluated(Record):
    """The model as it was at `at` on the test set. `samples`: training samples seen by then.

    chance: the accuracy of always answering the most common class of the test set; 0 where nobody knows.
    """

    accuracy: float
    loss: float
    samples: int
    seconds: float
    chance: float = 0.0


@keyword_record
class Membership(Record):
    """`party` joined, left or was lost; a worker joins with its `device`, on a `host`."""

    party: str
    event: str
    reason: str = ""
    device: str = ""
    host: str = ""


ARRIVALS = ("joined", "returned")
"""Events of a Membership after which the party is there; after all others of a worker it is not."""


@keyword_record
class Leased(Record):
    """What became of leased samples so far, each sample of each epoch counted by itself.

    epochs: whole ones, of which all samples are done. done: in an update, each counted once. twice: in another, too.
    returned: given to others since whoever had them left or was lost; dropped: since their gradients came too late or
    were refused; undone: since the update was lost with a server. left_out: refused twice, so that the samples
    themselves are to blame; they count as done in `epochs`.
    """

    epochs: int
    done: int
    twice: int
    returned: int
    dropped: int
    undone: int
    left_out: int


@keyword_record
class Ended(Record):
    """The run is over."""

    reason: str


KINDS: dict[str, type[Record]] = {
    cls.__name__.lower(): cls for cls in (Span, Applied, Decision, Gated, Evaluated, Membership, Leased, Ended)
}


LISTS = ("ranks", "whom")


NAMES = {cls: name for name, cls in KINDS.items()}
DEFAULTS = {cls: tuple((f.name, f.default) for f in dataclasses.fields(cls)) for cls in KINDS.values()}
FIELDS = {cls: tuple(name for name, _ in fields) for cls, fields in DEFAULTS.items()}
VALUES = {cls: attrgetter(*names) for cls, names in FIELDS.items()}

Row = tuple[Any, ...]


def to_dict(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": NAMES[type(record)]}
    for name, default in DEFAULTS[type(record)]:
        value = getattr(record, name)
        if value != default:
            fields[name] = value
    return fields


def from_dict(line: dict[str, Any]) -> Record:
    """Raises KeyError for an unknown kind and TypeError for missing or unknown fields."""
    fields = dict(line)
    return _made(KINDS[fields.pop("kind")], fields)


def to_row(record: Record) -> Row:
    return (NAMES[type(record)], *VALUES[type(record)](record))


def from_row(row: Sequence[Any]) -> Record:
    """Raises KeyError for an unknown kind and ValueError for missing or further values."""
    cls = KINDS[row[0]]
    return _made(cls, dict(zip(FIELDS[cls], row[1:], strict=True)))


def _made(cls: type[Record], fields: dict[str, Any]) -> Record:
    for name in LISTS:
        if name in fields:
            fields[name] = tuple(fields[name])
    return cls(**fields)
