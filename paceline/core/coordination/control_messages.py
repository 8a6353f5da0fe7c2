"""Messages of the control plane: everything between the parties and the coordinator that is not the scheme's.

party -> coordinator                                       coordinator -> party
Hello             I am here, reach me there                Roster        where everybody is, and who is not
Ready             my model and its speed (workers)         Plan          what each of you does
Prepared          my role is in place                      Go            training starts now
Progress          what I have done so far (workers)        Total         samples trained by all workers
Records           lines of the trace                       WorkerLeft    a worker takes no further part
Aware             I have heard who joins or leaves         WorkerJoined  a worker joins or rejoins
EvaluationReport  an evaluation (evaluator)                Stop          the run is over
Unfit             a worker must be expelled (servers)      Explain       print your stack trace (workers)
Left              I take no further part (workers)         Finish        evaluate and save the last model (evaluator)
Saved             the model is on disk (evaluator)         Exit          end your process
Failed            I cannot go on, because                  Restore       load a snapshot or a copy (servers)
Beat              I am alive, with nothing to report       Resume        all servers are restored (the others)
Ask               how much may I train? (workers)          Quota         so many samples more (workers)
Want              samples to work at (workers)             Lease         these samples are yours now (workers)
Past              so far nothing is under way (workers)    Fence         is anything left of that incarnation? (servers)
SamplesResolved   what became of samples (servers)         NewcomerLost  another that joins is lost (newcomers)
Fenced            so much (servers)
Restored          just these samples are done (servers)
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
    """Raises ValueError where one of these fields of `message` has a NaN or an infinity."""
    for name in names:
        value = getattr(message, name)
        for number in value if isinstance(value, tuple) else (value,):
            if not math.isfinite(number):
                raise ValueError(f"{name}: {number} is no finite number")


@message("control.Hello", plane="control")
class Hello:
    """Makes a party known to the coordinator: the first message of every process.

    bytes_per_second      at which a server applies an update to its weights; 0 if not measured
    bytes_per_second_max  the most that this may really be, given the noise of the measurement
    incarnation           number of this incarnation of the party, from 0
    cores, cpus           how many its process may use, 0 if unknown, and their numbers, empty if unknown
    """

    address: bounds.Name
    pid: bounds.Count
    host: bounds.Name
    device: bounds.Name
    bytes_per_second: bounds.Speed = 0.0
    bytes_per_second_max: bounds.Speed = 0.0
    incarnation: bounds.Count = 0
    cores: bounds.Count = 0
    cpus: bounds.Counts = ()

    def __post_init__(self) -> None:
        finite(self, "bytes_per_second", "bytes_per_second_max")


@message("control.Roster", plane="control")
class Roster:
    """Tells a party where all others are.

    addresses, hosts  by party
    incarnations      of the workers, by rank; only for a newcomer
    gone              ranks that take no further part
    lost              those of them that cannot be asked for anything
    joining           those of the lost that are joining now, as the receiver is
    server_view       grows whenever the servers go back to an earlier state
    more              this is not the last part of the roster (`message_parts.py`)
    """

    addresses: dict[str, str]
    hosts: dict[str, str]
    incarnations: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    joining: tuple[int, ...] = ()
    server_view: int = 0
    more: bool = False


@message("control.Ready", plane="control")
class Ready:
    """Says that a worker is ready, and what it measured.

    length            parameters of the model; `fingerprint`: of their names and shapes
    batch_limit       samples of its largest batch; 0 for any
    layout            names and shapes themselves, packed (`same_model.py`), for an error
    seconds_per_step  measured on this worker
    optimizer         recipe as JSON; that of rank 0 counts
    links             bytes a second from each server; 0 for one on the same host, empty if not measured
    links_max         the most that these may really be, given the noise
    peers             to a worker of this host, and of another: seconds of latency and seconds a byte of each; 0 where
                      there is none, empty if not measured
    ways              how vectors travel to servers and other workers
    by_rows           gradients come as rows of tables
    tensors           their lengths, if the optimizer needs whole ones
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
    layout: bounds.LongText = ""
    batch_limit: bounds.Count = 0

    def __post_init__(self) -> None:
        finite(self, "seconds_per_step", "links", "links_max", "peers")


@message("control.Plan", plane="control")
class Plan:
    """Tells all processes what the coordinator decided (`coordinator/planning.py`).

    workers           the most that there can be; those of the highest ranks may join later
    layout            which server holds which slices of the `length` parameters
    seconds_per_step  by rank, empty if unknown; `devices` and `hosts` are by rank, too
    batch_limits      the largest batches, by rank, 0 for any; empty where nobody has one
    allreduce         who carries the means of this run
    transport         how vectors travel; `notes`: what was decided, and why
    tensors           their lengths, if the optimizer needs whole ones; no slice cuts one of them then
    replaced          a lost server is replaced; `copied`: each update is on the next server before it is acknowledged
    crowded           why no core is free to communicate while others compute; empty where one may be
    samples           that all workers together train, before a resume included; 0 if not counted
    epochs            passes over a data set that only the workers know, after which the run ends; 0 for no such rule
    contribution      samples of one contribution, at most; `epoch_samples`: of the data set; 0 if unknown
    resumed           the run was resumed from a checkpoint, so clocks do not begin with 1
    more              this is not the last part of the plan (`message_parts.py`)
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
    batch_limits: tuple[int, ...] = ()
    more: bool = False


@message("control.Prepared", plane="control")
class Prepared:
    """Says that a party has taken up its plan, or that a server was restored.

    number: of the Restore that it answers. version: of the server now; `undone`: updates that it lost by that.
    failed: it could not be restored, since the source did not have all of its slices.
    """

    number: bounds.Count = 0
    version: bounds.Count = 0
    undone: bounds.Count = 0
    failed: bool = False


@message("control.Go", plane="control")
class Go:
    """Starts training. For a newcomer: it began `at` seconds ago, all workers have trained `samples` since, and earlier
    incarnations of this one made `steps`.
    """

    at: float = 0.0
    samples: int = 0
    steps: int = 0


@message("control.Progress", plane="control")
class Progress:
    """Reports a worker's sums since training started. `seconds_*` add up to the time it has trained, all but three:

    seconds_hidden                communication that it did not wait for
    seconds_at_batch              how long it has been computing its present mini-batch; 0 while it waits
    seconds_in_loop               how long its loop has been without a step; 0 while that step waits for others
    steps_before, samples_before  done before the run was resumed; their seconds are not in these sums
    bytes_shared                  bytes of `bytes_up` and `bytes_down` that passed by shared memory
    share                         samples of its share of the first data set, in this incarnation and in those before,
                                  without those that it alone has
    samples_alone                 those of `samples` of local work that no exchange has had yet: they are lost with it
    steps_alone                   those of `steps` of that work
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
    seconds_in_loop: bounds.Seconds = 0.0
    steps_before: bounds.Count = 0
    samples_before: bounds.TotalSamples = 0
    share: bounds.Count = 0
    samples_alone: bounds.TotalSamples = 0
    steps_alone: bounds.Count = 0

    def __add__(self, other: Progress) -> Progress:
        """Adds the progress of two incarnations, the later one second."""
        sums = {of.name: getattr(self, of.name) + getattr(other, of.name) for of in dataclasses.fields(self)}
        of_now = ("seconds_at_batch", "seconds_in_loop", "share", "samples_alone", "steps_alone")
        return Progress(**sums | {name: getattr(other, name) for name in of_now})


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
    """Says that a party is alive that has nothing else to report."""


@message("control.Explain", plane="control")
class Explain:
    """Asks a worker whose step takes too long to print its stack trace to standard error, which is its log."""


@message("control.Total", plane="control")
class Total:
    """Tells samples and exchanges of all workers together. `epochs`: whole ones of leased data, all in updates."""

    samples: int
    epochs: int = 0
    exchanges: int = 0


@message("control.Records", plane="control")
class Records:
    """Carries trace records. `lines`: each a row of JSON on a line of its own."""

    lines: bounds.LongText


@message("control.Ask", plane="control")
class Ask:
    """Asks for a quota of `samples`, or fewer if not so many are left, in mini-batches of `batch`.

    A worker that leaves asks for 0 samples: what it has not trained, by its Progress, is for the others. `epoch`: the
    samples of its data set, by which a rule in epochs counts; 0 if the rule counts samples.
    """

    samples: bounds.TotalSamples
    batch: bounds.Samples
    epoch: bounds.TotalSamples = 0


@message("control.Quota", plane="control")
class Quota:
    """Grants so many samples more; 0 when none are left."""

    samples: int


@message("control.Want", plane="control")
class Want:
    """Asks for a lease, of an epoch of `samples` that is cut into leases of `size`."""

    samples: bounds.Count
    size: bounds.Count


@message("control.Lease", plane="control")
class Lease:
    """Grants the samples at positions `start` to `stop` of the order of that epoch."""

    epoch: int
    start: int
    stop: int


@message("control.Past", plane="control")
class Past:
    """Says that none of the first `handed` samples of this incarnation's leases is, or will be, on its way."""

    handed: bounds.Count


@message("control.SamplesResolved", plane="control")
class SamplesResolved:
    """Reports, from the first server, the fate of contributions: whose, what became of it, which samples."""

    contributions: bounds.Fates


@message("control.Fence", plane="control")
class Fence:
    """Asks the first server, after WorkerLeft, which samples of that incarnation wait in open rounds."""

    rank: int
    incarnation: int


@message("control.Fenced", plane="control")
class Fenced:
    """Answers Fence: only `pending` samples may still be applied; all others are settled or will never arrive."""

    rank: bounds.Rank
    incarnation: bounds.Count
    pending: bounds.LeasedByAll


@message("control.Restored", plane="control")
class Restored:
    """Says, from the first server after it was restored, which samples are in its weights."""

    done: bounds.LeasedByAll


@message("control.EvaluationReport", plane="control")
class EvaluationReport:
    """Reports an evaluation of the model `at` seconds after the start, when workers had reported `samples`.

    The loss may be NaN if training diverged. accuracy: from 0 to 1. chance: as in `paceline.core.trace.Evaluated`.
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
    """Says that a worker trains no more. `drained`: it gets Exit when all know, or Finish if the run ends with it."""

    reason: bounds.Name
    drained: bool = False


@message("control.Rate", plane="control")
class Rate:
    """Sets the hyperparameters of a worker's optimizer on the servers, for what it contributes from now on.

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
    """Asks for the state of each slice once it has reached `version`, for that purpose; below 0: forget it.

    A worker captures its state after so many contributions, or as soon after that as possible. number: of the capture;
    each slice bears it, so that slices of two captures are never put together.
    """

    version: bounds.VersionWanted
    purpose: bounds.Name = ""
    number: bounds.Count = 0


@message("control.Restore", plane="control")
class Restore:
    """Orders servers, when one was lost, to load their slices from `source`, and to drop messages of other views.

    number    of this order; answers to an earlier one do not count
    source    the coordinator, with a snapshot for all servers; or a server, with the copy of the lost one
    departed  ranks of workers that take no part any more
    returned  ranks in a later incarnation than the snapshot may know
    """

    number: int
    server_view: int
    source: str
    departed: tuple[int, ...]
    returned: tuple[int, ...] = ()


@message("control.Resume", plane="control")
class Resume:
    """Tells everybody that all servers are restored.

    rolled_back: all went back to an earlier state; what was under way is void, and `server_view` begins. If not, the
    unanswered calls to the `replaced` servers are repeated.
    """

    server_view: int
    rolled_back: bool
    replaced: tuple[int, ...]


@message("control.WorkerLeft", plane="control")
class WorkerLeft:
    """Tells that an incarnation of worker `rank` takes no further part. `lost`: it cannot be asked any more."""

    rank: int
    lost: bool = False
    incarnation: int = 0
    view: int = 0  # of this change, which is to be acknowledged; 0 where nobody waits for that


@message("control.NewcomerLost", plane="control")
class NewcomerLost:
    """Tells the other newcomers, some of which call worker `rank`, that this incarnation is lost before it joined."""

    rank: int
    incarnation: int


@message("control.Unfit", plane="control")
class Unfit:
    """Asks the coordinator to expel worker `rank`, for that reason."""

    rank: bounds.Rank
    reason: bounds.Name


@message("control.Came", plane="control")
class WorkerJoined:
    """Tells that worker `rank` takes part from here on, in that incarnation; `view` counts such changes."""

    rank: int
    incarnation: int
    view: int
    address: str
    host: str


@message("control.Aware", plane="control")
class Aware:
    """Acknowledges every change of membership up to `view`."""

    view: bounds.Count


@message("control.Finish", plane="control")
class Finish:
    """Tells everybody that training has ended; each answers Saved once it needs the others no more.

    holder: the worker that left last; it has the last model where models live on workers. reason: why training ended,
    for people to read. target_reached: an evaluation ended it. samples: what all workers have trained.
    """

    holder: int
    reason: str = ""
    target_reached: bool = False
    samples: bounds.TotalSamples = 0


@message("control.Saved", plane="control")
class Saved:
    pass


@message("control.Exit", plane="control")
class Exit:
    pass


@message("control.Failed", plane="control")
class Failed:
    """Reports a failure. `cause`: one line; `details`: traceback or empty; `lost_another`: a lost party caused it."""

    cause: bounds.LongText
    details: bounds.LongText
    lost_another: bool = False
