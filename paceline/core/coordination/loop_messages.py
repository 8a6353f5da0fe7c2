"""Messages of a user's own training loop to the coordinator: it draws samples, reports evaluations, shares what it has
decided, ends the run.

Then what a worker says of its own results. At the end: what a person asks of loops and of the evaluator, by way of the
coordinator.
"""

from __future__ import annotations

from paceline.core.coordination.control_messages import finite
from paceline.core.message import message
from paceline.core.validation import bounds

BEGINS, IS_BACK, LEAVES, FINISHES = "begins", "is back", "leaves", "finishes"
"""What a worker may report of its share (`ShareTrained`)."""


@message("control.Draw", plane="control")
class Draw:
    """Asks for `wanted` samples or fewer of the queue of a data set, in mini-batches of `batch`.

    0 samples are asked for by a worker that leaves: what it has not trained is for the others.

    stream   number of the data set in the loop; `samples`: its length
    epochs   passes of all workers together after which the loop ends; 0 for no end
    trained  samples trained of those that this incarnation was given
    behind   places at which a loop that goes on from a state of its own begins
    done     which samples before these are known to be in the model; sent until the first answer
    """

    stream: bounds.Count
    samples: bounds.Count
    epochs: bounds.Count
    wanted: bounds.TotalSamples
    batch: bounds.Samples
    trained: bounds.TotalSamples
    behind: bounds.TotalSamples = 0
    done: bounds.LeasedByAll = ()


@message("control.Drawn", plane="control")
class Drawn:
    """Grants positions `start` to `stop` of the queue, none if both are equal. over: there will be no more."""

    stream: int
    start: int
    stop: int
    over: bool = False


@message("control.ShareTrained", plane="control")
class ShareTrained:
    """Reports how much of data set `stream` its sender has trained: when its loop begins, asks for more, and leaves.

    sizes    the share of each worker in an epoch, in samples
    own      samples of its own share; the first ones are trained
    taken    samples of the pieces that it took of shares of others (`TakeShare`)
    steps    that it makes of its share until its loop has what it has asked for; 0: without end
    event    BEGINS: it goes on with its share. IS_BACK: it shares that with the others. LEAVES: what it has not trained
             is for the others. FINISHES: nothing is, since each loop says how often its share is trained
    """

    stream: bounds.Count
    sizes: bounds.Counts
    own: bounds.Count
    taken: bounds.Count = 0
    steps: bounds.Count = 0
    event: bounds.Name = BEGINS


@message("control.TakeShare", plane="control")
class TakeShare:
    """Asks for at most `wanted` samples of shares that workers have left.

    epochs   those of which the sender takes a part; 0: all, but of its own share only
    taken    samples of earlier such pieces that it has trained
    steps    that it has made; it waits until no other worker can leave anything. 0: it needs the answer at once
    """

    stream: bounds.Count
    wanted: bounds.Samples
    epochs: bounds.Count
    taken: bounds.Count
    steps: bounds.Count = 0


@message("control.ShareTaken", plane="control")
class ShareTaken:
    """Grants places `start` to `stop` of the share of worker `rank`, none if both are equal."""

    stream: int
    rank: int = 0
    start: int = 0
    stop: int = 0


@message("control.SharesLeft", plane="control")
class SharesLeft:
    """Reports to the evaluator what workers that are gone have trained of the first data set's shares.

    free     the shares that are free, as (rank, samples in an epoch)
    trained  what those workers have trained, and what was trained before the run, as (rank, start, stop)
    """

    free: tuple[tuple[int, int], ...]
    trained: tuple[tuple[int, int, int], ...]


@message("control.Reported", plane="control")
class Reported:
    """Reports an evaluation made by a worker's loop; 0 for what it did not measure."""

    accuracy: bounds.Fraction
    loss: bounds.Loss

    def __post_init__(self) -> None:
        finite(self, "accuracy")


@message("control.ShareValue", plane="control")
class ShareValue:
    """Gives all workers a value under a name, as JSON, in place of the last one of that name."""

    name: bounds.Name
    value: bounds.ValueText


@message("control.SharedValue", plane="control")
class SharedValue:
    """Passes such a value on, to its sender too (`own`): all workers see the values of a name in one order."""

    name: bounds.Name
    value: bounds.ValueText
    own: bool = False


@message("control.EndRun", plane="control")
class EndRun:
    """Asks that the run ends for all, from a worker's loop."""

    reason: bounds.Name


OF_SCRIPTS = (Draw, Reported, ShareValue, EndRun)
"""What only a script's loop sends; a run of `paceline train` has none."""


@message("control.OwnResult", plane="control")
class OwnResult:
    """Tells whether result `number` of its sender, from 1, is finite: sent if it is not, and for the next one that is.

    mean: it is a part of a mean that workers carry, in which the others took part.
    """

    number: bounds.Count
    finite: bool
    mean: bool = False


# ---- what a person asks (`operator_orders.py`) -----------------------------------------------------------------
@message("control.Drain", plane="control")
class Drain:
    """Asks a worker to leave after its step, as SIGTERM to its process does."""

    reason: str


@message("control.ScaleRate", plane="control")
class ScaleRate:
    """Sets the factor on a worker's learning rate, counted from the beginning of its training: 1 changes nothing."""

    factor: float


@message("control.SaveNow", plane="control")
class SaveNow:
    """Asks the evaluator for a checkpoint, whether one is due or not."""
