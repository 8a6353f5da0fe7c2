"""The typed records of a trace; a live run and the simulator write the same ones.

Every record is one line of `trace.jsonl`: `{"kind": <a key of KINDS>, ...fields}`. Fields that have their
default are left out. `at` is seconds since training started, on the clock of the party that wrote it; no two parties'
clocks are ever subtracted.

On its way to the process that writes the file a record is a row: its kind, then the values of all its fields in their
order.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from paceline.core.message import keyword_record


@keyword_record
class Record:
    """All trace records derive from this class; `at` is seconds since training started."""

    at: float


@keyword_record
class Span(Record):
    """A worker was busy for `seconds`, ending at `at`, with one activity: computing, waiting or communicating.

    hidden: seconds in which bytes moved while the worker was busy with something else. exchanges: 1 where an exchange
    took place since the step before, 0 where the worker went on alone. cpu: core seconds that the worker's process
    used for its steps, waits for a core left out; 0 where that is not known. A thinned trace has sums of several spans,
    all of a worker's ending at the same moment, one after the other.
    """

    rank: int
    activity: str
    seconds: float
    steps: int = 0
    samples: int = 0
    hidden: float = 0.0
    exchanges: int = 0
    cpu: float = 0.0


@keyword_record
class Applied(Record):
    """Shard `shard` applied an update made of the contributions of `ranks`, which gave it `version`.

    `staleness` counts the versions applied between the weights that the contribution was computed on and this update;
    `weight` is the factor that the staleness weighting gave it.
    """

    shard: int
    ranks: tuple[int, ...]
    version: int
    staleness: int
    weight: float
    samples: int


OPERATOR = "operator"
"""The party of a decision that a person has made, by a control of the live page."""
_RATE = re.compile(r"times [\d.e+-]+, ([\d.e+-]+) in all")


def rate_change(factor: float, in_all: float) -> str:
    """Returns how a decision says that the operator multiplies the learning rate, and by what in all."""
    return f"times {factor:g}, {in_all:g} in all"


def rate_factor(reason: str) -> float | None:
    """Returns the factor in all of a reason that begins with `rate_change`; None for any other reason."""
    found = _RATE.match(reason)
    return float(found[1]) if found else None


NOT_SAVED = "not saved"
"""The verdict of a decision about a checkpoint that could not be written."""


IN_PARTS = re.compile(r"makes its steps in parts of at most ([1-9]\d{0,9}) samples?")
"""The verdict of a worker whose memory does not hold a whole mini-batch."""


def in_parts_of(samples: int) -> str:
    """Returns that verdict."""
    return f"makes its steps in parts of at most {samples} sample{'s' * (samples > 1)}"


NO_STEPS = "makes no steps"
"""The verdict about a worker that has been training for long and hands nothing over."""


LEFT_UNTRAINED = "left untrained"
"""The verdict about a worker of whose share nobody trained the rest."""
ASKS_FOR_END = "asks for the end"
"""The verdict about a worker whose loop asks for the end of the run, and does not decide about it."""


SPEAKS = "speaks for group"
"""How a verdict begins that says who speaks for a group of workers; its number follows."""


OVERLAPS, DOES_NOT_OVERLAP = OVERLAP_VERDICTS = ("overlaps", "does not overlap")
"""The verdicts of a worker that has measured steps with overlap and without (`--overlap auto`)."""


@keyword_record
class Decided(Record):
    """`party` decided `verdict` about worker `rank`, because of `reason`. It is written when the verdict changes.

    whom: the workers that this one waits for, if it waits, the scheme knows them and they are few enough to name.
    """

    party: str
    rank: int
    verdict: str
    reason: str
    whom: tuple[int, ...] = ()


OWN = -1
"""The shard of a fault that a worker has found in its own result."""


@keyword_record
class Gated(Record):
    """Shard `shard` found a fault in what worker `rank` sent.

    A `shard` of OWN says that the worker itself found it, in a result of its own that no server sees.
    From the gradient check, `number` is that of the contribution (from 1). If `refused`, the contribution was left out
    of the update; otherwise it was only noted. The message checks always refuse, and their `number` counts the worker's
    strikes; the third strike expels the worker.
    """

    shard: int
    rank: int
    number: int
    refused: bool
    reason: str


@keyword_record
class Evaluated(Record):
    """The model as it was at `at` was evaluated on the test set. `samples`: training samples seen by then.

    chance: the accuracy of always answering the most common class of the test set; 0 where that is not known.
    """

    accuracy: float
    loss: float
    samples: int
    seconds: float
    chance: float = 0.0


@keyword_record
class MemberChange(Record):
    """`party` joined, left or was lost; a worker joins with its `device`, on a `host`."""

    party: str
    event: str
    reason: str = ""
    device: str = ""
    host: str = ""


ARRIVALS = ("joined", "returned")
"""Values of `MemberChange.event` after which the party takes part; after any other event of a worker it does not."""


@keyword_record
class LostWork(Record):
    """`steps` and `samples` of worker `rank` are in no model, and count no more. Spans before have them.

    They were lost with `party`, a worker: with itself, or with the one that spoke for its `group` (-1: no group).
    """

    party: str
    rank: int
    steps: int
    samples: int
    group: int = -1


@keyword_record
class Leased(Record):
    """Counts what became of the leased samples so far; each sample of each epoch counts by itself.

    epochs: whole epochs, of which all samples are done. done: samples in an update, each counted once. twice: samples
    in a second update, too. returned: given to others because the worker that had them left or failed. dropped: given
    to others because their gradients came too late or were rejected. undone: the update was lost with a server.
    left_out: rejected twice, so the samples themselves are to blame; they count as done in `epochs`.
    """

    epochs: int
    done: int
    twice: int
    returned: int
    dropped: int
    undone: int
    left_out: int


@keyword_record
class CpuUsed(Record):
    """The process of `party` has used `seconds` core seconds since training started; it may use `cores` cores.

    It is a sum, of which costs are made; what a process uses at a moment is in `ResourceUse`.
    """

    party: str
    seconds: float
    cores: int


@keyword_record
class ResourceUse(Record):
    """Says what the process of `party` uses of its machine.

    memory_bytes       resident memory of the process
    cores              CPU time a second since the record before: 1.0 is one core all the time
    device_bytes       memory of the accelerator that this process has reserved; 0 on a CPU
    device_total_bytes what the accelerator has
    device_share       share of the time at which the accelerator was busy, from 0 to 1, by anybody; -1 if unknown
    """

    party: str
    memory_bytes: int
    cores: float
    device_bytes: int = 0
    device_total_bytes: int = 0
    device_share: float = -1.0


@keyword_record
class LinkTraffic(Record):
    """Says how many bytes `party` has sent to `other`, and received from it, in the `seconds` up to `at`.

    One end of a link tells it. Bytes that passed by shared memory count too.
    """

    party: str
    other: str
    sent: int
    received: int
    seconds: float


@keyword_record
class Ended(Record):
    """Says that the run ends, and why. Records of the workers' last steps and last exchange may follow."""

    reason: str


KINDS: dict[str, type[Record]] = {
    "span": Span,
    "applied": Applied,
    "decision": Decided,
    "gated": Gated,
    "evaluated": Evaluated,
    "membership": MemberChange,
    "lost_work": LostWork,
    "leased": Leased,
    "resources": ResourceUse,
    "traffic": LinkTraffic,
    "cpu": CpuUsed,
    "ended": Ended,
}
"""The classes of records by the `kind` that stands in a line of the trace file."""


LISTS = ("ranks", "whom")
"""Fields that are tuples; JSON gives them back as lists."""


NAMES = {cls: name for name, cls in KINDS.items()}
DEFAULTS = {cls: tuple((f.name, f.default) for f in dataclasses.fields(cls)) for cls in KINDS.values()}
FIELDS = {cls: tuple(name for name, _ in fields) for cls, fields in DEFAULTS.items()}
VALUES = {cls: attrgetter(*names) for cls, names in FIELDS.items()}

Row = tuple[Any, ...]
"""A record as it travels: its kind, then its fields in order."""


def to_dict(record: Record) -> dict[str, Any]:
    """Returns the record as one line of the trace, without fields that have their default."""
    fields: dict[str, Any] = {"kind": NAMES[type(record)]}
    for name, default in DEFAULTS[type(record)]:
        value = getattr(record, name)
        if value != default:
            fields[name] = value
    return fields


def from_dict(line: dict[str, Any]) -> Record:
    """Returns the record of one line.

    Raises KeyError for an unknown kind and TypeError for missing or unknown fields.
    """
    fields = dict(line)
    return _made(KINDS[fields.pop("kind")], fields)


def to_row(record: Record) -> Row:
    """Returns a record as a tuple that begins with its kind, as it travels to the coordinator."""
    return (NAMES[type(record)], *VALUES[type(record)](record))


def from_row(row: Sequence[Any]) -> Record:
    """Returns the record of one row.

    A row of an older recording ends before fields that came later; they have their defaults. Raises KeyError for an
    unknown kind and ValueError for missing or further values.
    """
    cls = KINDS[row[0]]
    names, given = FIELDS[cls], len(row) - 1
    if given < len(names) and DEFAULTS[cls][given][1] is not dataclasses.MISSING:
        names = names[:given]
    return _made(cls, dict(zip(names, row[1:], strict=True)))


def _made(cls: type[Record], fields: dict[str, Any]) -> Record:
    """Returns a record of JSON's fields, where lists stand for tuples."""
    for name in LISTS:
        if name in fields:
            fields[name] = tuple(fields[name])
    return cls(**fields)
