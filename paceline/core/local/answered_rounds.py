"""Gossip schemes in rounds share this: who waits for a worker's part of a round asks, and is answered behind that part.

    worker j:   send the part of round k to i;   told <- k + 1
    worker i:   Call(j, RoundSent(k)),  answered by j as soon as k < told, and at once when j has finished

Messages between two workers keep their order, so the answer says that the part is there, or never will be. That is why
a worker never waits for a part itself: it could be lost with its sender.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from paceline.core.effects import Reply, Tell
from paceline.core.local.push_sum import Holder
from paceline.core.message import message
from paceline.core.role import RoleContext
from paceline.core.validation import bounds


@message("rounds.Sent")
class RoundSent:
    """Asks whether the receiver's part of round `round` is sent. Answered by itself, behind that part."""

    round: bounds.RoundNumber


class AnsweredRounds(Holder):
    """A worker that answers RoundSent.

    told: for all rounds below it this worker has sent its part, or never will. asked: who waits for its part of which
    round. finished: it makes no further round.
    """

    transient: ClassVar[tuple[str, ...]] = ("told", "asked", "finished")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.told = 0
        self.asked: dict[int, int] = {}
        self.finished = False

    def need_not_wait(self, rank: int) -> bool:
        """Returns True if `rank`, which has asked, waits for nothing any more."""
        return self.finished or self.asked[rank] < self.told

    def is_too_far(self, round: int) -> bool:
        """Returns True if no worker can be in that round yet, as far as this one knows."""
        return False

    def answer_who_asked(self) -> Iterator[Reply]:
        """Answers everybody who need not wait."""
        # Looked up anew each time: between two of the loop's replies somebody may ask, and be answered.
        while (rank := next(filter(self.need_not_wait, self.asked), None)) is not None:
            yield Reply(rank, RoundSent(round=self.asked.pop(rank)))

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        match message:
            case RoundSent(round=round) if self.is_too_far(round):
                yield Reply(src, RoundSent(round=self.told))  # or it would wait for ever, and others for it
                if self.place.refuses is not None:
                    self.place.refuses(src, f"RoundSent: round is {round}, which nobody can be in yet")
            case RoundSent(round=round):
                self.asked[src] = round
                yield from self.answer_who_asked()
            case _:
                yield from super().on(now, src, message)

    def finish(self, now: float) -> Iterator[Tell | Reply]:
        """Answers everybody: there will be no further part."""
        self.finished = True
        yield from super().finish(now)
        yield from self.answer_who_asked()

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        self.asked.pop(rank, None)
        yield from super().on_worker_left(now, rank)
