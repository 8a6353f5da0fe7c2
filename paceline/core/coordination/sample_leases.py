"""Samples at the coordinator: leases, quotas, and shares that workers leave.

The rules are in `paceline.core.samples`; here they become messages.

    worker                    coordinator                      first server
    Want             ->       Lease
                                                     <-        SamplesResolved, of every contribution
    (it is lost)              WorkerLeft, Fence            ->        Fenced, after what it settled before
    Past             ->       (a server was lost)    <-        Restored, before it is there again

The first server reports for all: a contribution goes to every shard, so one of them suffices.

A lost worker may have sent samples that its server still holds for a round. Fence asks the first server for these;
until Fenced has come they are neither done nor given to another worker, or they would be trained twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.lifecycle import StopRule
from paceline.core.coordination.loop_messages import FINISHES, IS_BACK, LEAVES, ShareTaken, ShareTrained, TakeShare
from paceline.core.coordination.party import Party, server, worker
from paceline.core.coordination.roster import ProgressTotals
from paceline.core.effects import Data
from paceline.core.errors import ProtocolError
from paceline.core.samples.left_shares import LeftShares
from paceline.core.samples.sample_budget import Budget
from paceline.core.samples.sample_leases import Leases
from paceline.core.samples.sample_queue import SampleQueue
from paceline.core.trace import Leased

FIRST = server(0)
MESSAGES = (control.Want, control.Past, control.SamplesResolved, control.Fenced, control.Restored)
Tell = Callable[[Iterable[Party], Any], None]

STREAMS_MAX = 1000
"""The maximum number of data sets of one training loop."""


class Leasing:
    """Answers Want with leases, and keeps the account of which samples are done.

    Nothing exists before the first Want, which brings the size of the data set.
    """

    def __init__(
        self,
        tell: Tell,
        recorded: Callable[[Leased], None],
        now: Callable[[], float],
        done: Data,
        on_false_claim: Callable[[Party, str], None],
    ) -> None:
        """`done`: samples finished before a resume. `on_false_claim` hears which worker made a false claim."""
        self._tell, self._recorded, self._now, self._done = tell, recorded, now, done
        self._leases: Leases | None = None
        self._on_false_claim = on_false_claim

    @property
    def leases(self) -> Leases | None:
        """Returns the queue; None before the first Want."""
        return self._leases

    @property
    def epochs(self) -> int:
        """Returns the number of whole epochs, of which every sample is done."""
        return self._leases.epochs if self._leases else 0

    def reached(self, rule: StopRule) -> bool:
        """Returns True if the samples after which the run ends are done; False also where nothing is leased."""
        end = rule.end(self._leases.samples) if self._leases else None
        return self._leases is not None and end is not None and self._leases.reached(end)

    def heard(self, src: Party, incarnation: int, said: Any) -> None:
        """Handles a message about leases. Raises ProtocolError for a claim that contradicts the account."""
        try:
            if isinstance(said, control.Want):
                self._want(src, incarnation, said)
            elif self._leases is not None:
                before = self.epochs
                self._learn(self._leases, src, incarnation, said)
                if self.epochs > before:
                    self.record()
        except ValueError as error:
            raise ProtocolError(f"{src}: {error}") from None

    def _want(self, src: Party, incarnation: int, want: control.Want) -> None:
        if self._leases is None:
            self._leases = Leases(want.samples, want.size, self._done)
        if (want.samples, want.size) != (self._leases.samples, self._leases.size):
            of = f"{self._leases.samples} samples by {self._leases.size}"
            raise ProtocolError(f"{src} wants leases of {want.samples} samples by {want.size}, others of {of}")
        epoch, start, stop = self._leases.take(src.index, incarnation)
        self._tell([src], control.Lease(epoch=epoch, start=start, stop=stop))

    def _learn(self, leases: Leases, src: Party, incarnation: int, said: Any) -> None:
        match said:
            case control.Past(handed=handed):
                leases.past(src.index, incarnation, handed)
            case control.SamplesResolved(contributions=contributions) if src == FIRST:
                for rank, fate, data in contributions:
                    self._settle(leases, rank, fate, data)
            case control.Fenced(rank=rank, incarnation=incarnation, pending=pending) if src == FIRST:
                leases.fenced(rank, incarnation, pending)
            case control.Restored(done=done) if src == FIRST:
                leases.restored(done)
            case other:
                raise ProtocolError(f"{src} sent {type(other).__name__}, which only the first server may send")

    def _settle(self, leases: Leases, rank: int, fate: str, data: Data) -> None:
        """Records the fate of a contribution; a false claim counts against the worker, not the reporting server."""
        try:
            leases.settled(rank, fate, data)
        except ValueError as error:
            self._on_false_claim(worker(rank), str(error))

    # ---- membership --------------------------------------------------------------------------------------
    def gone(self, rank: int, incarnation: int, *, ask: bool) -> None:
        """Ends the leases of an incarnation, once everybody was told that it is lost or has left.

        ask: the first server is in its place. One that is being restored has no open round yet, and would answer that
        nothing waits there; it is asked when it is back (`servers_are_back`).
        """
        if self._leases is not None and self._leases.leave(rank, incarnation) and ask:
            self._tell([FIRST], control.Fence(rank=rank, incarnation=incarnation))

    def servers_are_back(self, living: dict[int, int]) -> None:
        """Sends the Fences that are not answered: nobody was asked, or a lost server may have lost the question.

        living: the incarnation of each training worker, by rank; their samples are still in their hands.
        """
        for rank, incarnation in list(self._leases.unsettled()) if self._leases else ():
            if living.get(rank) != incarnation:
                self._tell([FIRST], control.Fence(rank=rank, incarnation=incarnation))

    def record(self) -> None:
        """Records the account for the trace."""
        if self._leases is not None:
            self._recorded(self._leases.account(self._now()))


class Quotas:
    """Divides the samples of a run without leases among the workers, by quotas or from the queue of a loop.

    A worker has trained what it reported. What a lost worker trained after its last report is trained again by others.
    """

    def __init__(self, stop_rule: StopRule, totals: ProgressTotals) -> None:
        self._budget: Budget | None = None
        self._epochs: dict[int, int] = {}  # by rank: samples of the data set by which the rule counts epochs
        self._end = 0  # samples after which the run ends, by the length that most workers have reported
        self._stop_rule, self._totals = stop_rule, totals
        self._queues: dict[int, SampleQueue] = {}  # by data set of the loop

    def quota(self, rank: int, ask: control.Ask, *, training: int) -> int:
        """Returns how many samples worker `rank` may train, where `training` workers train; 0 when none are left.

        A worker that asks for none leaves, so what it has not trained is free. Raises ProtocolError for a request of
        less than nothing, in mini-batches of less than one sample, or by epochs of another length.
        """
        if not ask.samples:
            self._settle(rank)
            return 0
        if ask.samples < 1 or ask.batch < 1:
            raise ProtocolError(f"worker {rank} asks for {ask.samples} samples in mini-batches of {ask.batch}")
        budget = self._budget_by(rank, ask.epoch)
        return budget.quota(rank, ask.samples, ask.batch, training)

    def _budget_by(self, rank: int, epoch: int) -> Budget:
        """Returns the budget of the run, whose epochs are as long as most workers report, and of as many the longest.

        Raises ProtocolError if worker `rank` reports another length than most.
        """
        self._epochs[rank] = epoch
        claims = Counter(self._epochs.values())
        of_most, count = max(claims.items(), key=lambda claim: (claim[1], claim[0]))
        end = self._stop_rule.end(of_most) or 0
        if self._budget is None:
            self._budget = Budget(end - self._stop_rule.behind)
        else:
            self._budget.left = max(0, self._budget.left + end - self._end)
        self._end = end
        if epoch != of_most and 2 * count > len(self._epochs):
            raise ProtocolError(f"worker {rank} counts epochs of {epoch} samples, others of {of_most}")
        return self._budget

    def draw(self, rank: int, draw: loop_messages.Draw, *, training: int) -> loop_messages.Drawn:
        """Draws a range of samples for worker `rank`, where `training` workers train.

        A worker that wants none leaves, so what it has not trained is free.
        Raises ProtocolError if its data set has another length than that of the others.
        """
        queue = self._queues.get(draw.stream)
        if queue is None:
            queue = self._queues[draw.stream] = self._make_queue(draw)
        if queue.samples != draw.samples:
            raise ProtocolError(
                f"worker {rank} shares a data set of {draw.samples} samples with others that have {queue.samples}: all "
                "give the same one to pace.batches; where each has data of its own, it takes its own DataLoader"
            )
        queue.trained(rank, draw.trained)
        places = None
        if draw.wanted:
            places = queue.take(rank, draw.wanted, max(1, draw.batch), epochs=draw.epochs, workers=training)
        else:
            queue.gone(rank)
        start, stop = places or (0, 0)
        return loop_messages.Drawn(stream=draw.stream, start=start, stop=stop, over=queue.over)

    def _make_queue(self, draw: loop_messages.Draw) -> SampleQueue:
        """Makes the queue of a data set. Only a loop's first data set counts towards the rule that ends the run."""
        if draw.samples < 1 or draw.stream > STREAMS_MAX:
            raise ProtocolError(
                f"data set {draw.stream} of {draw.samples} samples: it needs a sample, and a number <= {STREAMS_MAX}"
            )
        rule = self._stop_rule
        if draw.stream:
            return SampleQueue(draw.samples)
        return SampleQueue(draw.samples, rule.end(draw.samples), rule.behind or draw.behind)

    def gone(self, rank: int) -> None:
        """Returns to the others what the present incarnation of worker `rank` had and did not train."""
        for queue in self._queues.values():
            queue.gone(rank)
        self._settle(rank)

    def _settle(self, rank: int) -> None:
        if self._budget is not None:
            self._budget.settle(rank, self._totals.of(rank))


def _other_shares(rank: int, sizes: Sequence[int], of_most: Sequence[int]) -> str:
    has = f"a data set of {sum(sizes)} samples" if sizes else "a data set"
    return (
        f"worker {rank} shares {has} with others that have {sum(of_most)}, or by another partition: all give the same "
        "ones to pace.batches; where each has data of its own, it takes its own DataLoader"
    )


class ShareRequests:
    """Gives others what workers have left of their shares (`paceline.core.samples.left_shares`).

        worker                     coordinator
        ShareTrained, BEGINS  ->   (its share is its own)
        TakeShare             ->   ShareTaken: a piece; none, if nothing is free
        TakeShare, steps      ->   the same, but only once no other worker can leave anything
        ShareTrained, LEAVES  ->   (what it has not trained is free)
        (it is lost)               (what it has not trained is free, as far as its progress was reported)

    A worker that waits takes part in no exchange. So it does not wait where another one may need it: where that one
    makes more steps than it has made, or servers have gone back to an earlier state. Nor does it wait for one that
    LEAVES or FINISHES: that one makes its last exchange, and may wait for the others in it.
    """

    def __init__(
        self,
        send: Callable[[Collection[Party], ShareTaken], None],
        totals: ProgressTotals,
        here: Callable[[], set[int]],
    ) -> None:
        """`here` returns the ranks of the workers that train."""
        self._send, self._totals, self._here = send, totals, here
        self._shares: dict[int, LeftShares] = {}  # by data set
        self._said: dict[int, dict[int, ShareTrained]] = {}  # by data set and rank: the last report
        self._waiting: dict[int, TakeShare] = {}  # by rank
        self._leaving: set[int] = set()  # they train no more, and make their last exchange
        self._waits = True  # may anybody?

    def trained(self, rank: int, said: ShareTrained) -> Sequence[tuple[int, str]]:
        """Takes a worker's report of its share.

        The shares are those that most workers report: one that lies would otherwise have all others expelled that
        report after it. Returns whose shares turn out to be others, and why; they are a false claim. Raises
        ProtocolError if it is those of this worker.
        """
        if rank >= len(said.sizes) or said.stream > STREAMS_MAX:
            raise ProtocolError(f"worker {rank} has none of the {len(said.sizes)} shares of data set {said.stream}")
        reports = self._said.setdefault(said.stream, {})
        reports[rank] = said
        claims = Counter(report.sizes for report in reports.values())
        (sizes, count), *_ = claims.most_common(1)
        decided = 2 * count > len(reports) or self._here() <= reports.keys()
        liars = [other for other, report in reports.items() if report.sizes != sizes] if decided else []
        before = self._shares.get(said.stream)
        if before is None or before.sizes != sizes:
            self._shares[said.stream] = LeftShares(sizes)
            for other in [other for other, report in reports.items() if report.sizes == sizes and other != rank]:
                self._take_report(other, reports[other])
        for liar in liars:
            del reports[liar]
        if said.sizes == sizes:
            self._take_report(rank, said)
        elif rank in liars:
            raise ProtocolError(_other_shares(rank, said.sizes, sizes))
        self._answer_waiting()
        return [(liar, _other_shares(liar, (), sizes)) for liar in liars]

    def _take_report(self, rank: int, said: ShareTrained) -> None:
        """Takes a report whose shares are those of most."""
        shares = self._shares[said.stream]
        shares.trained(rank, said.taken)
        self._leaving.discard(rank)
        if said.event in (LEAVES, FINISHES):
            self._leaving.add(rank)
        if said.event == IS_BACK:
            shares.free(rank)
        elif said.event == FINISHES:
            shares.finish(rank)
        elif said.event == LEAVES:
            shares.gone(rank, said.own)
        else:
            shares.own(rank, said.own, said.steps)

    def take(self, rank: int, ask: TakeShare) -> None:
        """Answers a worker, at once or later. Raises ProtocolError if it has not reported its shares; it is answered
        even so, since it waits, and the others may wait for it.
        """
        if ask.stream not in self._shares or not ask.wanted:
            self._send([worker(rank)], ShareTaken(stream=ask.stream))
            raise ProtocolError(f"worker {rank} asks for {ask.wanted} samples of data set {ask.stream}")
        shares = self._shares[ask.stream]
        shares.trained(rank, ask.taken)
        shares.done(rank, ask.epochs)
        self._waiting[rank] = ask
        self._answer_waiting()

    def gone(self, rank: int) -> None:
        """Frees what worker `rank` has not trained."""
        self._waiting.pop(rank, None)
        self._leaving.discard(rank)
        for stream, shares in self._shares.items():
            # One that is lost has not reported how much it has trained, but its progress.
            shares.gone(rank, 0 if stream else self._totals.share_of(rank))
        self._answer_waiting()

    def servers_go_back(self) -> None:
        """Lets nobody wait from now on: exchanges that were made are made again, and need everybody."""
        self._waits = False
        self._answer_waiting()

    def untrained(self) -> dict[int, int]:
        """Returns the samples of each worker's share of the first data set that nobody has trained, nor will."""
        return self._shares[0].untrained() if 0 in self._shares else {}

    def _answer_waiting(self) -> None:
        """Answers all that get a piece now, and those that need not wait any more."""
        for rank, ask in list(self._waiting.items()):
            shares, here = self._shares[ask.stream], self._here() - self._leaving
            piece = shares.take(rank, ask.wanted, ask.epochs, here)
            if piece is not None:
                self._answer(rank, ShareTaken(stream=ask.stream, rank=piece.rank, start=piece.start, stop=piece.stop))
            elif not (self._waits and ask.steps and shares.may_leave_more(rank, ask.steps, here)):
                self._answer(rank, ShareTaken(stream=ask.stream))

    def _answer(self, rank: int, answer: ShareTaken) -> None:
        del self._waiting[rank]
        self._send([worker(rank)], answer)
