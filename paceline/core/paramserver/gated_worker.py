"""The worker of a clock-gated server works at w, pushes what came of it, and takes the weights it is answered with."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

from paceline.core.effects import KEEP, SERVERS, STREAMS, Call, Compute, Effect, Train, memory_after
from paceline.core.paramserver.gated_server import DELTA, GRADIENT, Pull, Push, Weights
from paceline.core.role import Role, RoleContext


class ClockedWorker(Role):
    """Repeats: work at w, push what came of it, take the weights that the server answers with.

    A push stays on `self` until it is answered, so a restarted worker hands the very same over again.

    w: None from when it has been used until the next answer, so that a server which lent its memory has it back. With a
    gradient it is released when the loop has it, with local steps when they are done. A restarted worker pulls another.
    Where the servers have the model nobody looks at it here; a role whose phase this is sets `keeps_w`.
    """

    clock = 0
    common = ("clock",)
    servers_count = True
    goes_back = True
    # `memory` has been given to the optimizer by the time that a state is kept.
    transient: ClassVar[tuple[str, ...]] = ("steps", "payload", "memory", "pushed")

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.steps: int = getattr(scheme, "steps", 1)
        self.payload: str = getattr(scheme, "payload", GRADIENT)
        self.memory: str = getattr(scheme, "memory", KEEP)  # what the optimizer starts with in the next local steps
        self.pushed: Push | None = None

    def run(self) -> Generator[Effect, Any, None]:
        """Pulls the first weights, then repeats: work, push, take the answer."""
        if self.pushed is None:
            self.took((yield Call(SERVERS, Pull(last=self.clock))))
        while True:
            if self.pushed is None:
                self.pushed = self.made((yield self.work()))
            self.met((yield Call(SERVERS, self.pushed, STREAMS)))

    def work(self) -> Compute | Train:
        """Returns the effect that does the work of one exchange."""
        if self.payload == GRADIENT:
            return Compute(self.let_go(), self.steps, None, STREAMS)
        return Train(self.w, self.steps, self.memory)

    def let_go(self) -> Any:
        """Returns the weights and forgets them, unless somebody else looks at them."""
        w = self.w
        if not self.keeps_w:
            self.w = None
        return w

    def made(self, of: Any) -> Push:
        """Returns what came of `work`."""
        if self.payload == GRADIENT:
            v = of.g
        else:
            v = of.x - self.w if self.payload == DELTA else of.x
            self.memory = memory_after(of.x, self.scheme.memory)
            self.let_go()
        unused = of.unused if self.payload == GRADIENT else ()
        return Push(g=v, clock=self.clock + 1, samples=of.samples, data=of.data, unused=unused)

    def go_on_at(self, clock: int) -> None:
        self.clock = clock

    def progress(self) -> int:
        """Returns the clock, which a loop asks for twice in a step."""
        return self.clock

    def met(self, answer: Weights) -> bool:
        """Ends the exchange. Returns True if the weights of the answer are current."""
        self.pushed = None
        self.clock += 1
        return self.took(answer)

    def took(self, answer: Weights) -> bool:
        """Takes the weights of an answer. Returns True if they are current."""
        self.w, self.samples_seen = answer.w, answer.samples_seen
        return answer.current

    def on_rollback(self) -> None:
        """Drops the push under way: it belongs to weights that are void.

        The clock goes on: servers take any later one. That of the push is not used again: the state that the servers
        went back to may have it, and the next push would count as its repetition.
        """
        self.clock += self.pushed is not None
        self.pushed = None


class RefreshingWorker(ClockedWorker):
    """Serves schemes in which shard 0 alone holds workers back: a worker that was held pulls the weights again."""

    def run(self) -> Generator[Effect, Any, None]:
        """Does the same, but pulls again until the weights are current on all shards."""
        current = False
        while True:
            if self.pushed is None:
                while not current:
                    current = self.took((yield Call(SERVERS, Pull(last=self.clock))))
                self.pushed = self.made((yield self.work()))
            current = self.met((yield Call(SERVERS, self.pushed)))
