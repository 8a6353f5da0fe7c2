"""Makes one step of a worker: what backward has computed goes to the scheme, which asks for the next piece of work.

The loop and the scheme are one machine seen from two sides: the scheme asks for a gradient (`Compute`) or for local
steps (`Train`), the loop's backward provides them, and `step` resumes the scheme with the result and carries its
effects out until it asks again.

    user's loop                            this file                       scheme
    backward of batch 1
    pace.step()                  ->        Computed(g)              ->     Call(SERVERS, Push(g))
                                           ... waits for the reply ...
                                 <-        load w into the module   <-     Compute(w)
    backward of batch 2

A `Compute` of several steps, and a `Train`, take several turns of the loop; then `step` returns without an exchange.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from paceline.core.effects import Compute, Computed, Train, Trained
from paceline.core.errors import ConfigError, PeerLost, Stopped, Undone
from paceline.core.role import NO_WORK, WorkCount
from paceline.core.trace import DOES_NOT_OVERLAP, OVERLAPS, Decided
from paceline.runtime.checkpointing.worker_position import PositionLog
from paceline.runtime.checkpointing.worker_state import by_round
from paceline.runtime.worker.loop.batch_feed import BatchFeed
from paceline.runtime.worker.loop.batch_sizes import BatchSizes
from paceline.runtime.worker.loop.joined_run import JoinedRun, WorkerModel
from paceline.runtime.worker.loop.lease_client import LeasedPosition
from paceline.runtime.worker.loop.progress import ProgressCounters
from paceline.runtime.worker.loop.run_end import RunEnd
from paceline.runtime.worker.steps.loop_checks import LoopGuard
from paceline.runtime.worker.steps.lr_watch import LrFollower
from paceline.runtime.worker.steps.overlap import Overlap
from paceline.runtime.worker.steps.overlap_choice import OverlapChoice
from paceline.runtime.worker.steps.overlap_trial import OverlapTrial, TrialResult
from paceline.runtime.worker.steps.step_timer import Stopwatch

CLEARED_EARLY_MAX = 1 << 20
"""Parameters of a model whose gradient is cleared while the answer is under way; that may take a second buffer."""


class StepRunner:
    """Makes the steps of one worker, from the first exchange to the last."""

    def __init__(
        self,
        run: JoinedRun,
        model: WorkerModel,
        feed: BatchFeed,
        sizes: BatchSizes,
        end: RunEnd,
        *,
        counts: ProgressCounters,
        guard: LoopGuard,
        watch: Stopwatch,
        rate: LrFollower,
        positions: PositionLog,
        leases: LeasedPosition,
    ) -> None:
        self._run, self._model, self._feed, self._sizes, self._end = run, model, feed, sizes, end
        self._node = run.node
        self._counts, self._guard, self._watch, self.rate = counts, guard, watch, rate
        self._positions, self._leases = positions, leases
        self._exchanges = 0  # since the last step
        self._lost_work = NO_WORK  # of this worker, with others that held it
        self.ended = False  # has the last exchange been made?
        self._overlap = self._make_overlap()
        self._holds_model = by_round(run.recipe.make_scheme(), run.spec.servers)
        self._alone = run.spec.workers == 1 and not run.spec.servers  # what is handed over stays on its device
        flat = model.flat
        # A worker that makes updates takes its gradient from where backward leaves it. A speaker of `tiers` makes them
        # on the transport's thread, as soon as the last contribution of the round has come.
        small = len(flat) <= CLEARED_EARLY_MAX and not (flat.by_rows or flat.in_ranks)
        self._clears_early = small and run.spec.servers > 0 and not run.node.role.updates_alone
        self._cleared = False

    def _make_overlap(self) -> OverlapChoice | None:
        """Returns what decides which steps overlap communication with backward; None where there is nothing to gain.

        Emulated steps have none: nothing may leave before they are over.
        """
        spec, plan, flat = self._run.spec, self._run.plan, self._model.flat
        wanted = spec.overlap == "on" or (spec.overlap == "auto" and not plan.crowded)
        whole = flat.by_rows or len(plan.layout.slices) < 2
        if not wanted or spec.step_seconds or whole or self._model.partial.several:
            return None
        trial = OverlapTrial() if spec.overlap == "auto" else None
        return OverlapChoice(self._overlap_of_steps, self._model.work, trial, self._overlap_decided)

    def _overlap_of_steps(self) -> Overlap:
        """Returns the overlap of this worker, whose hooks are on the module from now on."""
        return Overlap(self._model.flat, self._run.node, lambda: self._feed.samples, lambda: self._leases.data)

    def _overlap_decided(self, result: TrialResult) -> None:
        """Notes in the trace whether this worker's steps overlap from now on."""
        run, verdict = self._run, OVERLAPS if result.overlaps else DOES_NOT_OVERLAP
        record = Decided(
            at=run.node.now(), party=str(run.spec.who), rank=run.rank, verdict=verdict, reason=result.reason
        )
        run.session.reports.note(record)

    def begin(self) -> None:
        """Lets the scheme ask for the first piece of work."""
        self._take(self._node.advance)

    def step(self, samples: int, model: str | None = None) -> None:
        """Hands over a mini-batch of `samples` samples, of one `model` of several. Raises PeerLost or TimedOut.

        The order matters: the guard and the learning rate come before the local step, which changes the weights; the
        time is taken before anything is sent.
        """
        node, work, partial = self._node, self._model.work, self._model.partial
        partial.begin(model)
        self._guard.before_step()
        self.rate.follow(self._model.update)
        self._make_local_step()
        items = self._feed.items or samples
        if items != samples and self._sizes.by_scheme is not None:
            raise ConfigError(
                f"{self._run.recipe.scheme} says how many items a batch has, and this step counts {samples} for {items}"
                ": leave samples_of= and the number in pace.step() out, or take another scheme"
            )
        at_least = self._run.spec.step_seconds * self._sizes.part_of_a_batch(items)
        overlap = self._overlap.now if self._overlap else None
        leaves = (work.left < 2 and not self._alone) or overlap is not None
        seconds = self._watch.passed(at_least, hands_over=leaves)
        seconds -= overlap.seconds_lost() if overlap else 0.0
        early = overlap if overlap and overlap.handed_over(samples) else None
        counted = partial.counted(model, samples)
        self._feed.trained()
        last = self._sizes.trained(samples, counted, whole=model is None or not counted or not partial.several)
        result = None if early else work.done(samples, seconds, self._leases.data, last=last)
        self._leases.handed_over()
        self._counts.add(counted, seconds)
        self._run.session.reports.spent(
            node.now(), "computing", seconds, 1, counted, exchanges=self._exchanges, cpu=self._watch.cpu
        )
        self._exchanges = 0
        if early or result is not None:
            self._counts.handed_over()
            self._note_position()
        if early:
            self._take(early.finish)
        elif result is not None:
            self._model.flat.settle()
            self._take(lambda: self._exchange(result))
        else:
            self._model.flat.zero_grad()
            self._guard.note_weights()
            self._watch.begin()

    def end(self) -> None:
        """Makes the last exchange: hands over what was trained since the one before, though it was to be more.

        After it no step is made. Nothing happens the second time. Raises PeerLost or TimedOut, unless the run ends.
        """
        if self.ended:
            return
        self.ended = True
        self.detach()
        # First, since this worker may wait for the others' round, and they for what it has of the data and leaves.
        self._feed.leave()
        session, role = self._run.session, self._node.role
        before = role.progress()
        if self._holds_model and self._model.work.begins and role.whole:
            self._positions.end()  # all that was trained is in what the role keeps
        self._positions.last_exchange()
        try:
            self._hand_over_the_rest()
        except PeerLost as error:
            if not session.stop_reason:
                raise
            print(
                f"paceline: worker {self._run.rank}: the last exchange failed ({error}): the final model is without "
                "what it has trained since the one before",
                file=sys.stderr,
            )
        if role.progress() != before:
            self._positions.between(role.progress())
        self._positions.end()
        if self._exchanges:  # no step follows that would count them
            session.reports.spent(self._node.now(), "computing", 0.0, exchanges=self._exchanges)
            self._exchanges = 0

    def _note_position(self) -> None:
        """Notes where this worker stands with what it is handing over."""
        counts, leases = self._counts, self._leases
        taken = leases.samples_trained, leases.trained_of_others
        self._positions.contributed(counts.steps, self._feed.position, counts.samples, *taken)

    def why_not_again(self, adds: bool) -> str:
        """Returns why the gradient of an attempt cannot be dropped; "" if it can. `adds`: it was added to others."""
        overlap = self._overlap.now if self._overlap else None
        if overlap and overlap.announced:
            return "some of its gradient has left already: give --overlap off"
        return "gradients of earlier batches are in it: make a pace.step() after each pace.backward()" if adds else ""

    def drop_gradient(self) -> None:
        """Drops the gradient of an attempt, so that it can be made again."""
        self.gather()
        self._model.flat.zero_grad()

    def gather(self) -> None:
        """Prepares a gradient that several backward passes make: none of it may leave before the last."""
        self._model.flat.settle()
        self.detach()

    def detach(self) -> None:
        """Ends the overlap, and takes its hooks off the module: nothing leaves any more while backward runs."""
        if self._overlap:
            self._overlap.end()

    def _hand_over_the_rest(self) -> None:
        """Hands over local work that is cut short, and what the scheme itself keeps.

        It does so once more if servers were replaced meanwhile.
        """
        result = None if self._node.stopped else self._model.work.cut_short()
        if result is not None:
            self._counts.handed_over()
            self._note_position()
            self._model.flat.settle()
            self._take(lambda: self._exchange(result))
        while True:
            try:
                self._node.end(soon=bool(self._end.notice))
                return
            except Stopped:
                return
            except Undone:
                self._take(self._node.advance)

    def _take_off_lost_work(self) -> None:
        """Counts no more, and lets this worker train again, what was lost with the worker that held it."""
        lost, before = self._node.role.lost_work(), self._lost_work
        if lost.samples > before.samples:
            self._lost_work, now = lost, WorkCount(lost.steps - before.steps, lost.samples - before.samples)
            self._counts.lose(now)
            self._feed.lost(now.samples)

    def _make_local_step(self) -> None:
        """Makes a local step where the scheme trains locally, and tells the rule of a worker how far all workers
        are."""
        seen = self._sizes.clock.now
        self._model.work.apply(seen)
        if self._node.role.updates_alone:
            self._model.update.samples_seen = seen

    def _exchange(self, result: Computed | Trained) -> Compute | Train:
        """Hands `result` over and returns the next piece of work.

        The gradient of a small model is cleared meanwhile: the lent one stays, and the next pass writes into another.
        """
        self._node.begin(result)
        if self._clears_early:
            self._model.flat.zero_grad()
            self._cleared = True
        return self._node.finish()

    def _take(self, advance: Callable[[], Compute | Train]) -> None:
        """Resumes the scheme until it asks for work, and prepares the loop's next backward for that."""
        node, flat = self._node, self._model.flat
        goes_back, anew = node.role.goes_back, node.begun_anew
        before = self._run.clock if goes_back else 0
        if self._overlap:
            self._overlap.turn()
        while True:
            try:
                wanted = advance()
                if not self._cleared or flat.has_gradient:
                    flat.zero_grad()
                self._cleared = False
                self._exchanges = int(self._model.work.begin(wanted))
                break
            except Stopped:
                self._guard.note_weights()  # a local step has changed them
                return
            except Undone:  # the weights will not all come: a server was replaced meanwhile
                advance = node.advance
        self._counts.exchanges += self._exchanges
        self._sizes.exchanged()
        self._take_off_lost_work()
        rolled_back = node.begun_anew > anew
        if goes_back and rolled_back and self._run.clock == before:  # not every scheme counts by its clock
            self._positions.on_rollback()
        self._leases.answered(anew=rolled_back)
        self._positions.between(node.role.progress(), whole=node.role.whole)
        if self._overlap:
            self._overlap.prepare(wanted)
        self._guard.note_weights()
        self._watch.begin()
