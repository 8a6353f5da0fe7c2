"""Messages of the control plane: everything between the parties and the coordinator that is not the scheme's.

party -> coordinator                                       coordinator -> party
Hello            I am here, reach me there                 Roster        where everybody is, and who is not
Ready            my model and its speed (workers)          Plan          what each of you does
Prepared         my role is in place                       Go            training starts now
Progress         what I have done so far (workers)         Total         samples trained by all workers
Records          lines of the trace                        WorkerLeft    a worker takes no further part
Aware            I have heard who joins                    WorkerJoined  a worker takes part (again)
EvaluationReport an evaluation (evaluator)                  Stop          the run is over
Unfit            what a worker sends is no good (servers)  Explain       where does your loop hang? (workers)
Left             I take no further part (workers)          Finish        evaluate and save the last model (evaluator)
Saved            the model is on disk (evaluator)          Exit          end your process
Failed           I cannot go on, because                   Restore       be what you were in the snapshot (servers)
Beat             I am alive, with nothing to report        Resume        all servers are there again (the others)
Ask              how much may I train? (workers)           Quota         so many samples more (workers)
Want             samples to work at (workers)              Lease         these samples are yours now (workers)
Past             so far nothing is under way (workers)     Fence         is anything left of that incarnation? (servers)
SamplesResolved  what became of samples (servers)
Fenced           so much (servers)
Restored         just these samples are done (servers)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from paceline.core.message import message
from paceline.core.sharding import Layout
from paceline.core.validation import bounds

Links = tuple[float, ...]


def finite(message: Any, *names: str) -> None:
    """Raises ValueError where one of these fields of `message` has a number that is none, or has no end."""
    for name in names:
        value = getattr(message, name)
        for number in value if isinstance(value, tuple) else (value,):
            if not math.isfinite(number):
                raise ValueError(f"{name}: {number} is no finite number")


@message("control.Hello", plane="control")
class Hello:
    """`bytes_per_second`: how fast a server applies an update to its weights; 0 when nobody measured.

    `bytes_per_second_max`: how fast it may be in truth, for all that was measured.
    `incarnation`: which incarnation of this party it is. `cores`: how many its process may use; 0 when nobody looked.
    """

    address: bounds.Name
    pid: bounds.Count
    host: bounds.Name
    device: bounds.Name
    bytes_per_second: bounds.Speed = 0.0
    bytes_per_second_max: bounds.Speed = 0.0
    incarnation: bounds.Count = 0
    cores: bounds.Count = 0

    def __post_init__(self) -> None:
        finite(self, "bytes_per_second", "bytes_per_second_max")


@message("control.Roster", plane="control")
class Roster:
    """A roster has the addresses and hosts by party.

    For a newcomer: `incarnations` has one number a worker, by rank. The `gone` take no further part. Those `lost` among
    them cannot be asked for anything, but may be `joining`, as is this one, which said hello last.
    """

    addresses: dict[str, str]
    hosts: dict[str, str]
    incarnations: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()
    server_view: int = 0


@message("control.Ready", plane="control")
class Ready:
    """`length` parameters; `fingerprint` of their names and shapes; `optimizer`: recipe as JSON, of rank 0.

    `links`: bytes a second from each server; 0 for one on the same host, nothing when nobody measured.
    `links_max`: how many they may be in truth, for all that was measured.
    `peers`: measured to another worker of this host, and to one of another host: seconds of latency and seconds a
    byte of each, 0 where there is none; nothing when nobody measured.
    `by_rows`: gradients come as rows of tables. `tensors`: their lengths, where the optimizer needs whole ones.
    `ways`: how vectors travel to servers and other workers.
    """

    length: bounds.Count
    fingerprint: bounds.Name
    seconds_per_step: bounds.Seconds
    optimizer: bounds.LongText
    links: bounds.Speeds = ()
    links_max: bounds.Speeds = ()
    peers: bounds.Speeds = ()
    ways: bounds.Names = ()
    by_rows: bool = False
    tensors: bounds.Counts = ()

    def __post_init__(self) -> None:
        finite(self, "seconds_per_step", "links", "links_max", "peers")


@message("control.Plan", plane="control")
class Plan:
    """`seconds_per_step`, `devices` and `hosts` by rank, the first empty when unknown.

    `allreduce`: who carries the means of this run. `transport`: how vectors travel. `notes`: what was decided, and why.
    `tensors`: their lengths, where the optimizer needs whole ones; no slice cuts any of them then.
    `workers`: how many there can be; those of the highest ranks may come later than at the beginning.
    `replaced`: is a server that is lost replaced by another one? `copied`: is what it answers on the next one first?
    `crowded`: why no core is idle in which to communicate while others compute; nothing where one may be.
    `samples`: that all workers together train, earlier incarnations of the run included; 0 where nobody counts them.
    `epochs`: passes over a data set that only the workers know, after which the run ends; 0 for no such rule.
    `contribution`: samples of one contribution, at most; `epoch_samples`: of the data set. 0 where nobody knows.
    `resumed`: the run goes on from a checkpoint, so that clocks do not begin with 1.
    """

    workers: int
    servers: int
    length: int
    layout: Layout
    seconds_per_step: tuple[float, ...]
    optimizer: str
    devices: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    allreduce: str = "servers"
    transport: str = ""
    notes: tuple[str, ...] = ()
    tensors: tuple[int, ...] = ()
    replaced: bool = False
    copied: bool = False
    crowded: str = ""
    samples: int = 0
    contribution: int = 0
    epoch_samples: int = 0
    epochs: float = 0.0
    resumed: bool = False


@message("control.Prepared", plane="control")
class Prepared:
    """`number`: of the Restore that it answers; the server is at `version` now, `undone` behind what it was.

    failed: it could not; the source had not all of it.
    """

    number: bounds.Count = 0
    version: bounds.Count = 0
    undone: bounds.Count = 0
    failed: bool = False


@message("control.Go", plane="control")
class Go:
    """For one who comes later: training started `at` seconds ago; all workers have trained `samples` since, and earlier
    incarnations of this one made `steps`.
    """

    at: float = 0.0
    samples: int = 0
    steps: int = 0


@message("control.Progress", plane="control")
class Progress:
    """Sums since the start. `seconds_*` add up to the time the worker has been training, without `seconds_hidden`:
    those of communication that it did not wait for.

    seconds_at_batch: how long its loop has been at its mini-batch by now; 0 while that waits, or does something else.
    steps_before, samples_before: those that an earlier run has made, whose seconds are not in these sums.
    """

    steps: bounds.Count
    samples: bounds.TotalSamples
    exchanges: bounds.Count
    seconds_computing: bounds.Seconds
    seconds_waiting: bounds.Seconds
    seconds_communicating: bounds.Seconds
    bytes_up: bounds.Count
    bytes_down: bounds.Count
    bytes_shared: bounds.Count = 0  # of these two together
    seconds_hidden: bounds.Seconds = 0.0
    seconds_at_batch: bounds.Seconds = 0.0
    steps_before: bounds.Count = 0
    samples_before: bounds.TotalSamples = 0

    def __add__(self, other: Progress) -> Progress:
        """Adds the progress of two incarnations, the later one second."""
        names = [field.name for field in dataclasses.fields(self)]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Progress(**{**sums, "seconds_at_batch": other.seconds_at_batch})


NOTHING = Progress(
    steps=0,
    samples=0,
    exchanges=0,
    seconds_computing=0.0,
    seconds_waiting=0.0,
    seconds_communicating=0.0,
    bytes_up=0,
    bytes_down=0,
)


@message("control.Beat", plane="control")
class Beat:
    """From those who make no progress of their own, as often as workers report theirs."""


@message("control.Explain", plane="control")
class Explain:
    """To one whose loop seems to hang: write down where it is, on standard error, which is its log."""


@message("control.Total", plane="control")
class Total:
    """`epochs`: whole ones, of which every sample is in an update, where data is leased."""

    samples: int
    epochs: int = 0


@message("control.Records", plane="control")
class Records:
    """`lines`: trace records, each a row of JSON on a line of its own."""

    lines: bounds.LongText


@message("control.Ask", plane="control")
class Ask:
    """For a quota of `samples`, or fewer where not so many are left, in mini-batches of `batch`."""

    samples: bounds.TotalSamples
    batch: bounds.Samples


@message("control.Quota", plane="control")
class Quota:
    """So many samples more; 0 where none are left."""

    samples: int


@message("control.Want", plane="control")
class Want:
    """A lease: of an epoch of `samples`, all of which are cut into leases of `size`."""

    samples: bounds.Count
    size: bounds.Count


@message("control.Lease", plane="control")
class Lease:
    """Places `start` to `stop` in the order of that epoch."""

    epoch: int
    start: int
    stop: int


@message("control.Past", plane="control")
class Past:
    """Nothing of the first `handed` samples that this incarnation was leased is on its way to servers, or will be."""

    handed: bounds.Count


@message("control.SamplesResolved", plane="control")
class SamplesResolved:
    """From the first server: whose contributions, what became of them, and which samples were in each."""

    contributions: bounds.Fates


@message("control.Fence", plane="control")
class Fence:
    """To the first server, after WorkerLeft: what is in open rounds of that incarnation of a worker?"""

    rank: int
    incarnation: int


@message("control.Fenced", plane="control")
class Fenced:
    """All that was not `pending` when this was sent is in an earlier SamplesResolved, or is never reported."""

    rank: bounds.Rank
    incarnation: bounds.Count
    pending: bounds.LeasedByAll


@message("control.Restored", plane="control")
class Restored:
    """From the first server, when it was made anew: just these samples are in its weights."""

    done: bounds.LeasedByAll


@message("control.EvaluationReport", plane="control")
class EvaluationReport:
    """The model as it was `at` seconds after the start, when the workers had reported `samples`.

    Where training went wrong the loss may be no number. chance: as in `paceline.core.trace.EvaluationReport`.
    """

    at: bounds.Seconds
    samples: bounds.Count
    accuracy: bounds.Fraction
    loss: bounds.Loss
    seconds: bounds.Seconds
    chance: bounds.Fraction = 0.0

    def __post_init__(self) -> None:
        finite(self, "at", "accuracy", "seconds", "chance")


@message("control.Stop", plane="control")
class Stop:
    reason: str


@message("control.Left", plane="control")
class Left:
    """`home`: it would end at once. It may where the others can do without it: then it hears Exit, else Finish."""

    reason: bounds.Name
    home: bool = False


@message("control.Rate", plane="control")
class Rate:
    """From a worker to the servers: new numbers of its optimizer, for what it contributes from now on.

    groups: all numbers of all parameter groups, one after the other; nothing where there is one group, whose numbers
    are the other fields.
    """

    lr: bounds.Real
    momentum: bounds.Real = 0.0
    nesterov: bool = False
    weight_decay: bounds.Real = 0.0
    beta1: bounds.Real = 0.9
    beta2: bounds.Real = 0.999
    eps: bounds.Real = 1e-8
    trust: bounds.Real = 0.001
    groups: bounds.Reals = ()


@message("control.Capture", plane="control")
class Capture:
    """Keep the state of each slice as it is once it has reached `version`, for that purpose; below 0: forget it.

    To workers: what they have after so many contributions, or as soon after that as can be. `number`: of the capture,
    which each slice bears, so that slices of two captures are never put together.
    """

    version: bounds.VersionWanted
    purpose: bounds.Name = ""
    number: bounds.Count = 0


@message("control.Restore", plane="control")
class Restore:
    """To servers, when one was lost: load your slices from `source`, and hear messages of `server_view` alone.

    source: the coordinator, with a snapshot for all servers; a server, with copies for the one in the lost one's place.
    number: of this order.

    departed: workers that take no part any more. returned: those in a later incarnation than the snapshot may know.
    """

    number: int
    server_view: int
    source: str
    departed: tuple[int, ...]
    returned: tuple[int, ...] = ()


@message("control.Resume", plane="control")
class Resume:
    """To everybody: all servers are there again, some in the place of others.

    rolled_back: all went back to an earlier state; what was under way to or from them is void; `server_view` begins.
    Else what was asked of those that were replaced is asked again.
    """

    server_view: int
    rolled_back: bool
    replaced: tuple[int, ...]


@message("control.WorkerLeft", plane="control")
class WorkerLeft:
    """`lost`: that incarnation of it without a word, so that it cannot be asked for anything any more."""

    rank: int
    lost: bool = False
    incarnation: int = 0


@message("control.Unfit", plane="control")
class Unfit:
    """Worker `rank` is to be put out of the run, for that reason."""

    rank: bounds.Rank
    reason: bounds.Name


@message("control.Came", plane="control")
class WorkerJoined:
    """Worker `rank` takes part from here on, in that incarnation and at that address; `view` counts such changes."""

    rank: int
    incarnation: int
    view: int
    address: str
    host: str


@message("control.Aware", plane="control")
class Aware:
    """Of every change up to `view`."""

    view: bounds.Count


@message("control.Finish", plane="control")
class Finish:
    """To everybody; each answers Saved once it has what it wants of the last model, and has told all it noted.

    `holder`: the worker that left last, and so has the last model where models live on workers. `reason`: why the
    workers were told to stop, or stopped, for people to read. target_reached: because of an evaluation.
    """

    holder: int
    reason: str = ""
    target_reached: bool = False


@message("control.Saved", plane="control")
class Saved:
    pass


@message("control.Exit", plane="control")
class Exit:
    pass


@message("control.Failed", plane="control")
class Failed:
    """`cause`: one line; `details`: a traceback or nothing. `lost_another`: it fails because another party was lost."""

    cause: bounds.LongText
    details: bounds.LongText
    lost_another: bool = False
