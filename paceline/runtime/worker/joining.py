"""Joins a worker to its run: its parts are made in an order that matters.

model, checks, stopwatch     before anybody is told of this worker
positions, leases            before training starts: the coordinator and a lost server may ask for them at once
the plan                     when everybody is ready
sizes, feed, steps           when training starts
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages, party
from paceline.core.errors import PeerLost
from paceline.core.trace import NO_STEPS, Decided, in_parts_of
from paceline.engine.forward_samples import ForwardSamples, SamplesOf
from paceline.engine.optim.evaluated_weights import evaluates_others
from paceline.engine.optim.own_optimizer import evaluates_again
from paceline.engine.sharded.gathered_model import GatheredModel
from paceline.engine.vectors.flat import Flat
from paceline.live.control.handlers import PartyCallbacks
from paceline.live.control.session import Session
from paceline.runtime.checkpointing.worker_position import PositionLog, set_generators
from paceline.runtime.checkpointing.worker_state import WorkerStateCapture
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.batchnorm_average import WorkerStatistics
from paceline.runtime.worker.lifecycle import WorkerLifecycle
from paceline.runtime.worker.loaded_moment import begin_beside, show_moment
from paceline.runtime.worker.loop.batch_feed import BatchFeed
from paceline.runtime.worker.loop.batch_sizes import BatchSizes
from paceline.runtime.worker.loop.joined_run import JoinedRun, WorkerModel
from paceline.runtime.worker.loop.lease_client import LeasedPosition, quotas_of
from paceline.runtime.worker.loop.progress import ProgressCounters, ResumedProgress
from paceline.runtime.worker.loop.run_end import RunEnd
from paceline.runtime.worker.loop.sample_counts import Allowance, Clock, InRounds
from paceline.runtime.worker.loop.step_runner import StepRunner
from paceline.runtime.worker.preemption_notice import PreemptionNotice
from paceline.runtime.worker.shared_optimizer_state import SharedOptimizerState
from paceline.runtime.worker.step_samples import StepSamples
from paceline.runtime.worker.steps.constraint import Constraint, limit_steps
from paceline.runtime.worker.steps.loop_checks import LoopGuard
from paceline.runtime.worker.steps.lr_watch import LrFollower
from paceline.runtime.worker.steps.split_backward import SplitBackward, Undo
from paceline.runtime.worker.steps.step_timer import Stopwatch


@dataclass(frozen=True, slots=True)
class Worker:
    """Holds the parts of a worker whose training has begun. `Pace` is the facade in front of them."""

    run: JoinedRun
    model: WorkerModel
    counts: ProgressCounters
    sizes: BatchSizes
    feed: BatchFeed
    samples: StepSamples
    steps: StepRunner
    end: RunEnd
    positions: PositionLog
    lifecycle: WorkerLifecycle
    statistics: WorkerStatistics
    guard: LoopGuard
    watch: Stopwatch
    notice: PreemptionNotice

    def progress(self) -> control.Progress:
        """Returns what this worker tells the coordinator of itself, some times a second."""
        session, watch = self.run.session, self.watch
        return self.counts.progress(
            session.node.times,
            self.lifecycle.traffic(),
            session.shared(),
            seconds_at_batch=watch.seconds_at_batch,
            seconds_in_loop=watch.seconds_in_loop,
            share=self.feed.trained_of_share,
            held_alone=session.node.role.held_alone(),
        )

    def tell(self, message: loop_messages.Reported | loop_messages.EndRun) -> None:
        """Sends a message to the coordinator, while the run goes on."""
        if not self.end.closed:
            with contextlib.suppress(PeerLost):  # without a coordinator the run ends in any case
                self.run.session.tell(message)

    def stop_watching(self) -> None:
        """Gives signals, optimizer and model back to the loop."""
        self.notice.close()
        self.lifecycle.optimizer_state.end()
        self.samples.end()
        self.steps.detach()
        self.guard.end()


def join_run(
    module: nn.Module,
    recipe: Recipe,
    spec: ProcessSpec,
    session: Session,
    *,
    optimizer: torch.optim.Optimizer | None,
    measure: Callable[[], float] | None,
    behind: ResumedProgress,
    flat: GatheredModel | None = None,
    samples_of: SamplesOf | None = None,
    constraint: Constraint | None = None,
) -> Worker:
    """Returns when training starts, with the first weights in `module`; `flat`: its vector, if several processes hold
    it; `samples_of`: counts a call of it; `constraint`: limits its weights. Raises PeerLost or TimedOut if training
    never starts, and ConfigError for a constraint where servers make the steps.
    """
    model = WorkerModel.of(module, recipe, spec, optimizer, behind.samples, flat)
    if constraint is not None:
        limit_steps(constraint, module, model.work, model.update, recipe, spec.servers)
    guard = LoopGuard(module, model.flat, model.work.steps_of_user, functools.partial(_report_no_steps, spec, session))
    calls = ForwardSamples(module, lambda: guard.has_gradient, wanted=lambda: False, samples_of=samples_of)
    try:
        return _joined(recipe, spec, session, model, guard, calls, optimizer, measure, behind, flat)
    except BaseException:  # Ctrl-C, too: model and optimizer go back to the loop, which may join again
        calls.end()
        guard.end()
        raise


def _joined(
    recipe: Recipe,
    spec: ProcessSpec,
    session: Session,
    model: WorkerModel,
    guard: LoopGuard,
    calls: ForwardSamples,
    optimizer: torch.optim.Optimizer | None,
    measure: Callable[[], float] | None,
    behind: ResumedProgress,
    flat: GatheredModel | None,
) -> Worker:
    """Does the same, with `model`, its `guard`, and what counts its `calls`."""
    watch = Stopwatch(model.device, session.over)
    counts, leases = ProgressCounters(), LeasedPosition(session)
    capture = model.capture(session.node, recipe, spec.servers)
    draws, dealt = _draws_of_ranks(spec, flat), leases.dealt
    positions = PositionLog(session.node, model.device, capture.take, draws, dealt)
    session.attach(
        PartyCallbacks(on_server_replaced=leases.tell_past, on_capture=lambda order: positions.want(order.version))
    )
    statistics = WorkerStatistics(session, model.buffers, spec.workers, lambda: counts.samples)
    optimizer_state = SharedOptimizerState(session, recipe, spec.servers, model.flat, optimizer, model.update)
    lifecycle = WorkerLifecycle(spec, session, recipe, model.flat, statistics, optimizer_state)
    if behind.masters is not None and not session.late:
        model.flat.load(Flat.wrap(behind.masters))
    plan, behind = _at_one_moment(spec, session, lifecycle, model, measure, behind)
    _say_what_is_not_kept(spec, session, optimizer)
    clock = _clock(session, recipe, plan, counts, behind.samples, model.partial.once)
    sizes = BatchSizes(model.work, clock, plan.samples, _allowance(session, spec, plan, clock), spec.batch_limit)
    _report_waits(session)
    run = JoinedRun(spec, session, recipe, plan, model.device, session.expect(control.Go).steps)
    behind = _remember(run, behind, capture, positions, flat)
    end = RunEnd(run, counts, sizes)
    feed = BatchFeed(
        run, sizes, end, counts=counts, guard=guard, watch=watch, positions=positions, leases=leases, behind=behind
    )
    warns = run.rank == 0 and plan.workers > 1 and not clock.lock_step
    rate = LrFollower(optimizer, recipe, session, spec.servers, warns=warns, scale_local=model.work.scale_rate)
    steps = StepRunner(
        run,
        model,
        feed,
        sizes,
        end,
        counts=counts,
        guard=guard,
        watch=watch,
        rate=rate,
        positions=positions,
        leases=leases,
    )
    samples, notice = StepSamples(run, feed, calls, guard, rate), PreemptionNotice(session)
    worker = Worker(
        run, model, counts, sizes, feed, samples, steps, end, positions, lifecycle, statistics, guard, watch, notice
    )
    optimizer_state.begin(plan, lambda: model.work.begins and session.node.role.whole)
    session.reports.begin(worker.progress)
    steps.begin()
    return worker


def _at_one_moment(
    spec: ProcessSpec,
    session: Session,
    lifecycle: WorkerLifecycle,
    model: WorkerModel,
    measure: Callable[[], float] | None,
    behind: ResumedProgress,
) -> tuple[control.Plan, ResumedProgress]:
    """Joins the run, and returns its plan and where this worker begins: at the moment of worker 0's loaded state."""
    if behind.loaded and not spec.who.index:
        show_moment(session, behind)
    plan = lifecycle.join(model.update, measure, behind.clock, behind.samples, behind.of_servers)
    if behind.loaded and spec.who.index and not session.late and 0 not in session.departed:
        behind = begin_beside(session, plan.workers, behind)
    return plan, behind


def _report_no_steps(spec: ProcessSpec, session: Session, reason: str) -> None:
    """Notes in the trace, and so on the command's terminal, that this worker hands nothing over."""
    at, who = session.node.now(), spec.who
    session.reports.note(Decided(at=at, party=str(who), rank=who.index, verdict=NO_STEPS, reason=reason))


def split_backward(worker: Worker) -> SplitBackward:
    """Returns what makes the backward passes of a worker in parts where memory asks for it, which the trace and the
    run's folder learn."""
    spec, session, steps = worker.run.spec, worker.run.session, worker.steps

    def report(size: int, exhausted: int) -> None:
        """Notes the new size, once its first step is made."""
        at, who = session.node.now(), spec.who
        verdict, reason = in_parts_of(size), f"out of memory at {exhausted} samples"
        session.reports.note(Decided(at=at, party=str(who), rank=who.index, verdict=verdict, reason=reason))

    return SplitBackward(
        spec.part_size,
        worker.model.device,
        has_gradient=lambda: worker.guard.has_gradient,
        undo=Undo(steps.why_not_again, steps.drop_gradient),
        split=steps.gather,
        report=report,
    )


def _say_what_is_not_kept(spec: ProcessSpec, session: Session, optimizer: torch.optim.Optimizer | None) -> None:
    """Prints, on worker 0 of a run that has an evaluator, what it does not have of such an optimizer."""
    kept = spec.config.checkpoint.every > 0 and session.has(party.EVALUATOR)
    if kept and not spec.who.index and evaluates_again(optimizer):
        what = "checkpoints are without what LBFGS remembers, which begins anew after --resume"
        print(f"paceline: {what}", file=sys.stderr)
    if not spec.who.index and session.has(party.EVALUATOR) and evaluates_others(optimizer):
        kind = type(optimizer).__name__
        print(
            f"paceline: evaluate= and checkpoints have the weights that {kind} trains, not those of its eval(): "
            "evaluate and save the model in the loop",
            file=sys.stderr,
        )


def _draws_of_ranks(spec: ProcessSpec, flat: GatheredModel | None) -> Callable[[], Sequence[Tensor]]:
    """Returns what reads the states of the ranks' generators; of nobody's in a run that keeps no checkpoints, as asking
    the ranks takes a moment at each exchange."""
    return flat.generator_states if flat is not None and spec.config.checkpoint.every > 0 else tuple


def _clock(
    session: Session,
    recipe: Recipe,
    plan: control.Plan,
    counts: ProgressCounters,
    begun_at: int,
    once: Callable[[int], int],
) -> Clock:
    """Returns the clock that counts the samples of all workers, from the beginning of training."""

    def told() -> int:
        """The coordinator's last total, and what was trained here since; at first, what earlier incarnations did."""
        return max(begun_at, session.total_samples) + counts.samples - counts.reported

    scheme = recipe.make_scheme()
    return Clock(
        lambda: session.node.role,
        lock_step=scheme.lock_step,
        equal_rounds=scheme.equal_rounds,
        workers=lambda: plan.workers - len(session.departed),
        told=told,
        once=once,
        exact=scheme.total_is_exact or not scheme.lock_step,
    )


def _allowance(session: Session, spec: ProcessSpec, plan: control.Plan, clock: Clock) -> Allowance | None:
    """Returns what bounds this worker in a run that ends after so many samples; None if that is not known before it
    begins."""
    if not plan.samples:
        return None
    return (
        InRounds(plan.samples, clock)
        if clock.equal_rounds
        else quotas_of(session, spec.timeout_s, divided=plan.workers > 1)
    )


def _report_waits(session: Session) -> None:
    """Lets the node report every wait to the trace, split into waiting, communicating, and communication that was
    hidden."""
    node, spent = session.node, session.reports.spent

    def waited(waiting: float, communicating: float, hidden: float) -> None:
        """Reports a wait, whose parts end now."""
        at = node.now()
        spent(at, "waiting", waiting)
        spent(at, "communicating", communicating, hidden=hidden)

    node.times.on_wait = waited


def _remember(
    run: JoinedRun,
    behind: ResumedProgress,
    capture: WorkerStateCapture,
    positions: PositionLog,
    flat: GatheredModel | None,
) -> ResumedProgress:
    """Goes on with what an earlier incarnation of the run has left, if that is how this one begins; returns what is
    behind this worker."""
    if run.session.late:
        # A worker that joins late takes over the run's present state, so the checkpoint says nothing to it.
        behind = ResumedProgress(batches=run.former_steps)
    memories = behind.memories
    if memories is None:
        positions.begin(run.clock, behind.batches, 0)
    else:
        capture.give_back(memories)
        states = memories.entry.generators
        if behind.draws_on and flat is None:
            set_generators(states, run.device)
        elif behind.draws_on and flat is not None:
            set_generators(states[:1], run.device)
            flat.set_generator_states(states[1:])
        positions.begin(run.clock, memories.entry.steps, memories.entry.position)
    return behind
