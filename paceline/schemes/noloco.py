"""NoLoCo: no all-reduce. After H local steps a worker averages with one other, drawn at random.

    worker i:  phi_i <- phi;  delta_i <- 0
               repeat  theta_i <- H steps of InnerOpt from phi_i
                       draw the pair {i, j};  send (phi_i, theta_i) to j and receive j's
                       delta_i <- alpha delta_i + beta mean(theta - phi) + gamma (mean(phi) - phi_i)
                       phi_i <- phi_i + delta_i

Kolehmainen et al. 2025, arXiv 2506.10911: the modified Nesterov step, with n = 2 workers in a mean. phi_i (here
`self.w`): the slow weights of worker i, theta_i its fast ones; delta_i, the momentum, starts at zero. The term with
gamma pulls the two together. It sums to zero over the pair, so the mean of all phi_i moves by beta and alpha alone, as
DiLoCo's weights would. InnerOpt is Adam in the paper, alpha 0.5, beta 0.7, H 50 to 100; gamma equals beta in the
authors' code. We had the abstract and that code, not the text.

Pairs: everybody knows the seed and the number k of its outer step, and so the pairs of that step. Two wait for each
other, and for nobody else. The odd one out, and who is paired with a worker that has left, steps alone: its means are
its own numbers. The paper routes activations between pipeline stages at random as well; there are no stages here. It
sends phi ahead, during the local steps; here both travel together.

The model that is evaluated and saved is the mean of the phi_i. Ours: where workers have come and gone they count
differently (push-sum masses, as in gosgd), and the means of a pair are weighted by these. A worker that leaves hands
its phi over and takes its delta along. A worker whose theta is not finite stands still in that step, and its InnerOpt
starts anew. What a partner sends that is not finite is left out.

Memory of the local optimizer: kept by default, or reset after a step with a partner. Pairs do not average it.

Use it on many workers across slow links, where an all-reduce is slow or waits for somebody each time. On a few equal
workers diloco has less noise. A worker that is always slower than the others holds up each of its partners in turn.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, ClassVar

from paceline.core.effects import KEEP, RESET, Call, Effect, Reply, Tell, Train, Trained
from paceline.core.errors import PeerLost
from paceline.core.local.answered_rounds import AnsweredRounds, RoundSent
from paceline.core.local.topology import paired_with
from paceline.core.message import STATE, Nature, message
from paceline.core.role import RoleContext
from paceline.core.scheme import Paper, Scheme, parameter, scheme
from paceline.core.validation import bounds
from paceline.core.vector import is_finite


@message("noloco.Part")
class PairPart:
    """Carries the weights of one worker to its partner of outer step `round`; `counts`: its mass, which stays there."""

    carries: ClassVar[Nature] = STATE

    phi: bounds.Whole
    theta: bounds.Whole
    counts: bounds.Mass
    round: bounds.RoundNumber


@scheme(
    "noloco",
    summary="many local steps, then a momentum step together with one worker drawn at random; no all-reduce",
    paper=Paper(
        key="kolehmainen2025noloco",
        authors="Kolehmainen, Jari and Blagoev, Nikolay and Donaghy, John and Ersoy, Oguzhan and Nies, Christopher",
        title="NoLoCo: No-all-reduce Low Communication Training Method for Large Models",
        venue="arXiv 2506.10911",
        year=2025,
        url="https://arxiv.org/abs/2506.10911",
    ),
)
class NoLoCo(Scheme):
    h: int = parameter(20, "H: local steps between two outer steps", low=1)
    alpha: float = parameter(0.5, "outer momentum", low=0.0, high=0.999)
    beta: float = parameter(0.7, "outer learning rate", low=0.0)
    gamma: float = parameter(0.7, "how strongly two partners are pulled together", low=0.0, high=2.0)
    memory: str = parameter(
        KEEP, "what a step with a partner does to the local optimizer's memory: keep or reset it", choices=(KEEP, RESET)
    )

    round_steps = "h"
    trains_locally = True
    needs_peers = True
    workers_differ = True

    class Worker(AnsweredRounds):
        """k: outer steps made. done: local steps that are in no outer step yet; `sent` is this worker's part of it."""

        common = ("k", "samples_seen")
        private = ("delta",)
        transient = ("k", "done", "sent", "parts")

        def __init__(self, scheme: Any, place: RoleContext) -> None:
            super().__init__(scheme, place)
            self.k = 0
            self.delta: Any = place.w * 0.0
            self.done: Trained | None = None
            self.sent: PairPart | None = None
            self.parts: dict[int, PairPart] = {}  # by sender

        def run(self) -> Generator[Effect, Any, None]:
            yield from self.enter()
            while True:
                if self.done is None:
                    self.absorb()
                    self.done = yield Train(self.w, self.scheme.h, memory=self.memory())
                    theta = self.trained(self.done.x)
                    self.sent = PairPart(phi=self.w, theta=theta, counts=self.weight, round=self.k)
                yield from self.meet(self.partner())
                self.outer_step()

        def partner(self) -> int | None:
            """Returns the other one of this step's pair; None for the odd one out, or if the other has left."""
            j = self.paired(self.k)
            return None if j in self.away else j

        def paired(self, k: int) -> int | None:
            """Returns the other one of the pair of outer step `k`; None for the odd one out."""
            return paired_with(self.me, k, len(self.workers), self.place.seed) if len(self.workers) > 1 else None

        def meet(self, j: int | None) -> Generator[Effect, Any, None]:
            """Sends this worker's part to `j` and waits until that one's has come, or never will."""
            try:
                if j is not None:
                    yield Tell(j, self.sent)
                self.told = self.k + 1
                yield from self.answer_who_asked()
                if j is not None:
                    yield Call(j, RoundSent(round=self.k))
            except PeerLost:
                self.told = self.k + 1
                yield from self.answer_who_asked()

        def outer_step(self) -> None:
            """Moves phi by what is there: with the partner's part, or alone."""
            sent, theirs = self.sent, self.theirs()
            assert sent is not None
            phi, theta = sent.phi, sent.theta
            if theirs is not None:
                share = theirs.counts / (sent.counts + theirs.counts)
                phi, theta = phi + (theirs.phi - phi) * share, theta + (theirs.theta - theta) * share
                self.mixed = True
            moved = (theta - phi) * self.scheme.beta + (phi - self.w) * self.scheme.gamma
            self.delta = self.delta * self.scheme.alpha + moved
            self.w = self.w + self.delta
            self.k += 1
            self.done = self.sent = None

        def theirs(self) -> PairPart | None:
            """Returns the part of this step that has come, if it is of use; forgets those of earlier steps."""
            j = self.paired(self.k)
            here = None if j is None else self.parts.get(j)
            self.parts = {rank: part for rank, part in self.parts.items() if part.round > self.k}
            if (
                here is None
                or here.round != self.k
                or not here.counts
                or not (is_finite(here.phi) and is_finite(here.theta))
            ):
                return None
            return here

        def need_not_wait(self, rank: int) -> bool:
            k = self.asked[rank]
            return self.finished or k < self.told or self.paired(k) != rank  # no part comes where they are no pair

        def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            match message:
                case PairPart(round=round):
                    if round >= self.k and self.paired(round) == src:  # nobody else has a part in that step
                        self.parts[src] = message
                case _:
                    yield from super().on(now, src, message)
