"""What training loops say to the coordinator: which samples they want, how good the model is, that the run may end."""

from __future__ import annotations

from paceline.core.message import message
from paceline.core.validation import bounds
from paceline.live.protocol.control_messages import finite


@message("control.Draw", plane="control")
class Draw:
    """For samples of the queue of a data set: `wanted` or fewer, in mini-batches of `batch`; 0 asks for none.

    stream: which data set of the loop it is; samples: its length. epochs: for so many passes of all workers together
    the loop goes on, 0 without end. trained: of what this incarnation was given.
    """

    stream: bounds.Count
    samples: bounds.Count
    epochs: bounds.Count
    wanted: bounds.TotalSamples
    batch: bounds.Samples
    trained: bounds.TotalSamples


@message("control.Drawn", plane="control")
class Drawn:
    """Places `start` to `stop` of the queue of that data set, none where both are equal. over: there will be none."""

    stream: int
    start: int
    stop: int
    over: bool = False


@message("control.Reported", plane="control")
class Reported:
    """How good the model is by the loop of a worker; 0 for what it did not say."""

    accuracy: bounds.Fraction
    loss: bounds.Loss

    def __post_init__(self) -> None:
        finite(self, "accuracy")


@message("control.EndRun", plane="control")
class EndRun:
    """The loop of a worker asks that the run ends for all."""

    reason: bounds.Name
