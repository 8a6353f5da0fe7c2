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

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages
from paceline.core.coordination.lifecycle import StopRule
from paceline.core.coordination.loop_messages import (
    BEGINS,
    FINISHES,
    IS_BACK,
    LEAVES,
    SharesLeft,
    ShareTaken,
    ShareTrained,
    TakeShare,
)
from paceline.core.coordination.party import Party, server, worker
from paceline.core.coordination.roster import ProgressTotals
from paceline.core.effects import Data
from paceline.core.errors import ProtocolError
from paceline.core.samples.left_shares import LeftShares
from paceline.core.samples.sample_budget import Budget
from paceline.core.samples.sample_leases import Leases
from paceline.core.samples.sample_queue import SampleQueue
from paceline.core.samples.shares_kept import KeptShare
from paceline.core.trace import Leased
from paceline.core.validation.majority import AgreedAccounts, Majority

FIRST = server(0)
MESSAGES = (control.Want, control.Past, control.SamplesResolved, control.Fenced, control.Restored)
Tell = Callable[[Iterable[Party], Any], None]


class OnFalseClaim(Protocol):
    """Counts a false claim of a worker; `at_once`: it suffices to expel it."""

    def __call__(self, who: Party, why: str, *, at_once: bool = False) -> None: ...


STREAMS_MAX = 1000
"""The maximum number of data sets of one training loop."""


class Leasing:
    """Answers Want with leases, and keeps the account of which samples are done.

    Nothing exists before the first Want, which brings the size of the data set. A Want of another size waits until it
    is known which most workers have; if that is not the first one, the account begins again.
    """

    def __init__(
        self,
        tell: Tell,
        recorded: Callable[[Leased], None],
        now: Callable[[], float],
        done: Data,
        on_false_claim: OnFalseClaim,
        here: Callable[[], set[int]],
    ) -> None:
        """`done`: samples finished before a resume. `on_false_claim` hears which worker made a false claim. `here`
        returns the ranks of the workers that train."""
        self._tell, self._recorded, self._now, self._done = tell, recorded, now, done
        self._leases: Leases | None = None
        self._on_false_claim, self._here = on_false_claim, here
        self._wants: Majority[control.Want] = Majority()
        self._waiting: dict[Party, int] = {}  # those that want leases of another size, and their incarnations

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
        self._wants.report(src.index, want)
        if want == control.Want(samples=self._leases.samples, size=self._leases.size):
            self._lease(self._leases, src, incarnation)
        else:
            self._waiting[src] = incarnation
        if self._waiting:
            self._settle_wants(self._leases)

    def _lease(self, leases: Leases, src: Party, incarnation: int) -> None:
        epoch, start, stop = leases.take(src.index, incarnation)
        self._tell([src], control.Lease(epoch=epoch, start=start, stop=stop))

    def _settle_wants(self, leases: Leases) -> None:
        """Answers those that wait once it is known which leases most workers want, and reports the others."""
        want = self._wants.settled(self._here())
        if want is None:
            return
        if (want.samples, want.size) != (leases.samples, leases.size):
            leases = self._leases = Leases(want.samples, want.size, self._done)
        waiting, self._waiting = self._waiting, {}
        liars = self._wants.others(want)
        for src, incarnation in waiting.items():
            if src.index not in liars:
                self._lease(leases, src, incarnation)
        for rank in liars:
            others = f"others of {want.samples} samples by {want.size}"
            other = self._wants.claim_of(rank)
            assert other is not None
            why = f"wants leases of {other.samples} samples by {other.size}, {others}"
            self._on_false_claim(worker(rank), why, at_once=True)

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
        self._waiting.pop(worker(rank), None)
        if self._leases is not None and self._leases.leave(rank, incarnation) and ask:
            self._tell([FIRST], control.Fence(rank=rank, incarnation=incarnation))
        if self._leases is not None and self._waiting:
            self._settle_wants(self._leases)

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

    def __init__(
        self, stop_rule: StopRule, totals: ProgressTotals, here: Callable[[], set[int]], done: Data = ()
    ) -> None:
        """`here` returns the ranks of the workers that train. `done`: samples that are in the model from the beginning,
        as far as a checkpoint says which."""
        self._stop_rule, self._totals, self._here, self._done = stop_rule, totals, here, done
        self._budgets: AgreedAccounts[int, Budget] = AgreedAccounts(self._make_budget)  # by the length of an epoch
        self._queues: dict[int, AgreedAccounts[int, SampleQueue]] = {}  # by data set of the loop, and its length

    def quota(self, rank: int, ask: control.Ask) -> int:
        """Returns how many samples worker `rank` may train; 0 when none are left.

        A worker that asks for none leaves, so what it has not trained is free. Raises ProtocolError for a request of
        less than nothing, in mini-batches of less than one sample.
        """
        if not ask.samples:
            self._settle(rank)
            return 0
        if ask.samples < 1 or ask.batch < 1:
            raise ProtocolError(f"worker {rank} asks for {ask.samples} samples in mini-batches of {ask.batch}")
        here = self._here()
        budget = self._budgets.report(rank, ask.epoch, here)
        return budget.quota(rank, ask.samples, ask.batch, len(here))

    def _make_budget(self, epoch: int) -> Budget:
        return Budget((self._stop_rule.end(epoch) or 0) - self._stop_rule.behind)

    def draw(self, rank: int, draw: loop_messages.Draw) -> loop_messages.Drawn:
        """Draws a range of samples for worker `rank`.

        A worker that wants none leaves, so what it has not trained is free. Raises ProtocolError for a data set that
        cannot be.
        """
        if draw.samples < 1 or draw.stream > STREAMS_MAX:
            raise ProtocolError(
                f"data set {draw.stream} of {draw.samples} samples: it needs a sample, and a number <= {STREAMS_MAX}"
            )
        if draw.stream not in self._queues:
            make = functools.partial(self._make_queue, draw.stream, draw.behind, draw.done)
            self._queues[draw.stream] = AgreedAccounts(make)
        here = self._here()
        queue = self._queues[draw.stream].report(rank, draw.samples, here)
        queue.trained(rank, draw.trained)
        places = None
        if draw.wanted:
            places = queue.take(rank, draw.wanted, max(1, draw.batch), epochs=draw.epochs, workers=len(here))
        else:
            queue.gone(rank)
        start, stop = places or (0, 0)
        return loop_messages.Drawn(stream=draw.stream, start=start, stop=stop, over=queue.over)

    def _make_queue(self, stream: int, behind: int, done: Data, samples: int) -> SampleQueue:
        """Makes the queue of a data set. Only a loop's first data set counts towards the rule that ends the run."""
        rule = self._stop_rule
        if stream:
            return SampleQueue(samples)
        return SampleQueue(samples, rule.end(samples), rule.behind or behind, self._done if rule.behind else done)

    def untrained(self) -> int:
        """Returns the samples of the first data set's queue that were given out, and that nobody has or has trained."""
        queue = self._queues[0].of_most() if 0 in self._queues else None
        return queue.returned if queue else 0

    def take_refused(self) -> list[tuple[int, str]]:
        """Returns whose epochs or data sets have another length than those of most workers, with a reason for each."""
        of_most = self._budgets.settled
        found = [
            (rank, f"worker {rank} counts epochs of {epoch} samples, others of {of_most}")
            for rank, epoch in self._budgets.take_refused()
        ]
        for queues in self._queues.values():
            found += [(rank, _other_data(rank, has, queues.settled)) for rank, has in queues.take_refused()]
        return found

    def gone(self, rank: int) -> None:
        """Returns to the others what the present incarnation of worker `rank` had and did not train."""
        for queues in self._queues.values():
            if queue := queues.of(rank):
                queue.gone(rank)
        self._settle(rank)

    def _settle(self, rank: int) -> None:
        if budget := self._budgets.of(rank):
            budget.settle(rank, self._totals.of(rank))


def _other_data(rank: int, samples: int, of_most: int | None, by: str = "") -> str:
    return (
        f"worker {rank} shares a data set of {samples} samples with others that have {of_most}{by}: all give the same "
        "to pace.batches; where each has data of its own, it takes its own DataLoader"
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
        kept: Sequence[KeptShare] = (),
        report: Callable[[SharesLeft], None] = lambda left: None,
    ) -> None:
        """`here` returns the ranks of the workers that train. `kept`: what a checkpoint had of the first data set's
        shares. `report` is called with what workers that are gone have trained of them, each time that changes."""
        self._send, self._totals, self._here, self._kept, self._report = send, totals, here, kept, report
        self._shares: dict[int, AgreedAccounts[Sequence[int], LeftShares]] = {}  # by data set, and the shares
        self._waiting: dict[int, TakeShare] = {}  # by rank
        self._leaving: set[int] = set()  # they train no more, and make their last exchange
        self._waits = True  # may anybody?
        self._has_reported = False

    def trained(self, rank: int, said: ShareTrained) -> None:
        """Takes a worker's report of its share. Raises ProtocolError if it has none."""
        if rank >= len(said.sizes) or said.stream > STREAMS_MAX:
            raise ProtocolError(f"worker {rank} has none of the {len(said.sizes)} shares of data set {said.stream}")
        kept = () if said.stream else self._kept
        make = functools.partial(LeftShares, kept=kept)
        shares = self._shares.setdefault(said.stream, AgreedAccounts(make))
        self._take_report(shares.report(rank, said.sizes, self._here()), rank, said)
        if not said.stream and (said.event != BEGINS or not self._has_reported):
            self._report_left()
        self._answer_waiting()

    def take_refused(self) -> list[tuple[int, str]]:
        """Returns whose shares are others than those that most workers report, with a reason for each."""
        found = []
        for shares in self._shares.values():
            of_most, by = sum(shares.settled or ()), ", or by another partition"
            found += [(rank, _other_data(rank, sum(sizes), of_most, by)) for rank, sizes in shares.take_refused()]
        return found

    def _take_report(self, shares: LeftShares, rank: int, said: ShareTrained) -> None:
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
        shares = self._of(ask.stream, rank)
        if shares is None or not ask.wanted:
            self._send([worker(rank)], ShareTaken(stream=ask.stream))
            raise ProtocolError(f"worker {rank} asks for {ask.wanted} samples of data set {ask.stream}")
        shares.trained(rank, ask.taken)
        shares.done(rank, ask.epochs)
        self._waiting[rank] = ask
        self._answer_waiting()

    def gone(self, rank: int) -> None:
        """Frees what worker `rank` has not trained."""
        self._waiting.pop(rank, None)
        self._leaving.discard(rank)
        for stream, of_stream in self._shares.items():
            # One that is lost has not reported how much it has trained, but its progress.
            for shares in of_stream.all():
                shares.gone(rank, 0 if stream else self._totals.share_of(rank))
        self._report_left()
        self._answer_waiting()

    def servers_go_back(self) -> None:
        """Lets nobody wait from now on: exchanges that were made are made again, and need everybody."""
        self._waits = False
        self._answer_waiting()

    def untrained(self) -> dict[int, int]:
        """Returns the samples of each worker's share of the first data set that nobody has trained, nor will."""
        shares = self._shares[0].of_most() if 0 in self._shares else None
        return shares.untrained() if shares else {}

    def _report_left(self) -> None:
        shares = self._shares[0].of_most() if 0 in self._shares else None
        if shares is not None and shares.moved:
            self._has_reported = True
            free, trained = shares.by_gone()
            self._report(SharesLeft(free=tuple(free.items()), trained=tuple(trained)))

    def _of(self, stream: int, rank: int) -> LeftShares | None:
        return self._shares[stream].of(rank) if stream in self._shares else None

    def _answer_waiting(self) -> None:
        """Answers all that get a piece now, and those that need not wait any more."""
        for rank, ask in list(self._waiting.items()):
            shares, here = self._of(ask.stream, rank), self._here() - self._leaving
            assert shares is not None
            piece = shares.take(rank, ask.wanted, ask.epochs, here)
            if piece is not None:
                self._answer(rank, ShareTaken(stream=ask.stream, rank=piece.rank, start=piece.start, stop=piece.stop))
            elif not (self._waits and ask.steps and shares.may_leave_more(rank, ask.steps, here)):
                self._answer(rank, ShareTaken(stream=ask.stream))

    def _answer(self, rank: int, answer: ShareTaken) -> None:
        del self._waiting[rank]
        self._send([worker(rank)], answer)
