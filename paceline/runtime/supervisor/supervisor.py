"""Brings a run up, watches it and ends it: the coordinator, its launcher, and what the run leaves behind."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import queue
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paceline import config as configuration
from paceline.checkpoint.folder_store import MODEL
from paceline.checkpoint.redis_url import NO_SECRETS, StoreSecrets
from paceline.config import Config
from paceline.core.errors import ConfigError, LockLost
from paceline.core.trace import NOT_SAVED, Decision, Membership, Record
from paceline.live import party
from paceline.live.control.handlers import COORDINATOR_GONE
from paceline.live.coordinator.lifecycle import RunPhase
from paceline.live.net.message_log import with_logging
from paceline.live.node.node import Node
from paceline.live.numpy_memory import PlainMemory
from paceline.live.party import Party
from paceline.live.protocol.control_messages import Hello, Plan, Progress
from paceline.live.protocol.transport import Transport
from paceline.live.same_host.temporary_folder import TemporaryFolder
from paceline.observe.plots.run_figures import curve
from paceline.observe.runs.summary import FAILED, SUMMARY, Summary, write_summary
from paceline.observe.terminal.progress import ProgressDisplay
from paceline.observe.trace.hooks import Hook, Hooks, load
from paceline.observe.trace.trace_file import TRACE, TraceWriter
from paceline.runtime.checkpointing.resume import ResumePoint, find
from paceline.runtime.run_folder.evaluation_times import EvaluationTimes
from paceline.runtime.run_folder.result_files import CURVE, Results
from paceline.runtime.run_folder.run_lock import RunLock, set_aside
from paceline.runtime.run_folder.run_statistics import RunStatistics
from paceline.runtime.run_folder.scale_up_signal import GROWS, asked_to_grow, grows
from paceline.runtime.run_folder.status_file import StatusFile
from paceline.runtime.server.snapshot_store import SnapshotStore
from paceline.runtime.spec.batch_size import batch_size_note, check_batch_size
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.launcher import Launcher, ProcessEnded
from paceline.runtime.spec.process_specs import make_specs, overlap_note
from paceline.runtime.supervisor.coordinator_factory import make_coordinator
from paceline.runtime.supervisor.credentials import Credentials, security_note
from paceline.runtime.supervisor.events import (
    Failure,
    Finished,
    Grow,
    Interrupted,
    MemberEvent,
    Started,
    StatusLine,
    Taken,
)
from paceline.runtime.supervisor.incarnations import PartyIncarnations
from paceline.runtime.supervisor.phase_deadlines import INTERRUPT_SECONDS, Deadline, RunFailed
from paceline.runtime.supervisor.root_cause import root_of

GRACE_SECONDS = 0.4  # between the first sign of a failure and the search for its cause
END_SECONDS = 0.8
SHOW_SECONDS = 0.25
SAVE_SECONDS = 2.0  # the evaluator of a run that has failed may take to save the model


class RunSupervisor:
    """One run. `run()` blocks until it is over; `interrupt()` may be called from a signal handler."""

    def __init__(
        self,
        config: Config,
        transport: Callable[[str, Callable[[BaseException], None]], Transport],
        launcher: Launcher,
        display: ProgressDisplay,
        *,
        evaluator: bool = True,
        credentials: Credentials | None = None,
        hooks: Sequence[Hook] = (),
        store_secrets: StoreSecrets = NO_SECRETS,
        accept_joins: bool = False,
    ) -> None:
        """`transport` makes the coordinator's from the run's token and a place to report errors to.

        `credentials` of all parties, if connections are under TLS; they end with the run. `hooks` besides --hook.
        `store_secrets` of --store. `accept_joins`: workers come by themselves, also while training goes on.

        Raises ConfigError when the data, a hook or a store cannot be had.
        """
        self._hooks = Hooks([*load(config.run.hook, config.run.out), *hooks])
        train_samples = launcher.prepare(config)
        if evaluator:
            check_batch_size(config, train_samples)
        self._batch_note = batch_size_note(config, train_samples) if evaluator else ""
        self._config, self._launcher, self._display = config, launcher, display
        self._out = Path(config.run.out)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._token = secrets.token_hex(16)
        self._evaluator, self._credentials, self._store_secrets = evaluator, credentials, store_secrets
        self._lock = self._claimed()
        made = functools.partial(transport, self._token, self._coordinator_failed)
        self._start, self._refused, self._transport = self._found(made)
        self._statistics = RunStatistics(config, train_samples, begun_at=self._start.samples)
        self._trace: TraceWriter | None = None
        to_target = config.stop.target_accuracy > 0
        times = EvaluationTimes(config.evaluation.every, to_target=to_target) if evaluator else None
        self._status_file = StatusFile(self._out, config.run.scheme, self._lock.fence, times)
        self._taken = False
        self._is_gone = False  # for everybody else
        self._results = Results(self._out, self._token, lambda line: display.begin((line,)), self._lock.fence)
        self._interrupted, self._where, self._lost_at = "", dict[Party, str](), dict[Party, str]()
        cluster = config.cluster
        node = Node(self._transport, PlainMemory())
        self._snapshots = SnapshotStore(self._transport, node, cluster.snapshot_every, copies=cluster.ack == "replica")
        self._incarnations = PartyIncarnations(config, launcher, lambda line: display.begin((line,)))
        self._not_started = [party.worker(rank) for rank in range(cluster.beginning, cluster.workers)]
        self._accept_joins = accept_joins
        self._coordinator = make_coordinator(
            self._transport,
            node,
            self,
            self._snapshots,
            config=config,
            train_samples=train_samples,
            evaluator=evaluator,
            done=self._start.done,
            behind=self._start.samples,
        )

    def _claimed(self) -> RunLock:
        """The folder, renewed from now on. Raises ConfigError where another run has it."""
        waits = self._config.checkpoint.resume == "auto"
        lock = RunLock(self._out, self._token, waits=waits, say=lambda line: self._display.begin((line,)))
        lock.keep_renewing(self._folder_lost)
        return lock

    def _folder_lost(self, why: str) -> None:
        """The folder is another run's: this one ends."""
        self._events.put(Failure(who=party.COORDINATOR, cause=f"{why}: this run ends", details="", rank=0))

    def _found(self, transport: Callable[[], Transport]) -> tuple[ResumePoint, list[str], Transport]:
        """Where it begins, and by what transport. The folder is not for others to write into."""
        try:
            found = find(self._config, self._store_secrets) if self._evaluator else (ResumePoint(self._config), [])
            return *found, self._tells(transport())
        except BaseException:
            self._lock.release()
            raise

    # ---- the run -----------------------------------------------------------------------------------------
    def run(self) -> Summary:
        """Once. Raises RunFailed with the first cause; nobody of the launcher is left either way."""
        try:
            return self._run()
        finally:
            self._lock.release()

    def _run(self) -> Summary:
        try:
            if self._config.checkpoint.resume == "auto":
                set_aside(self._out / TRACE)
            configuration.save(self._config, self._out / "config.toml")
        except OSError as error:
            raise ConfigError(f"--out {self._out}: {error.strerror}") from None
        with (
            asked_to_grow(self.grow if self._not_started else None),
            self._status_file.kept(),
            TemporaryFolder() as folder,
            self._hooks,
            TraceWriter(self._out / TRACE, bytes_max=self._config.run.trace_bytes, lost=self._tell) as trace,
        ):
            self._trace = trace
            try:
                address = self._coordinator.open()
                specs = make_specs(
                    self._config,
                    address,
                    self._token,
                    folder,
                    credentials=self._credentials.path if self._credentials else "",
                    resume=self._start.path,
                    evaluator=self._evaluator,
                    store_secrets=self._store_secrets,
                )
                self._incarnations.begin(specs, self._not_started)
                self._watch()
            except RunFailed as error:
                raise RunFailed(f"{error}{self._keep(str(error))}") from None
            finally:
                self._snapshots.close()
                self._disconnect()
                self._launcher.end(END_SECONDS)
                self._display.close()
                if self._credentials:
                    self._credentials.remove()
        return self._leave_behind()

    def _keep(self, cause: str) -> str:
        """Keeps what there is of a run that has failed; for the end of the line that says so."""
        if self._interrupted or not self._statistics.has_started:
            return ""
        self._statistics.finished(f"{FAILED}: {cause}", self.elapsed_s())
        self._disconnect()  # so that the evaluator hears of it, and saves the model that it looked at last
        until = time.monotonic() + SAVE_SECONDS
        while party.EVALUATOR in self._incarnations.up and (left := until - time.monotonic()) > 0:
            self._next_event(min(left, 0.05))
        kept = [f"{MODEL} (as evaluated last)"] if self._results.model else []
        kept += [SUMMARY] if self._write(self._statistics.summary()) else []
        return f"; kept: {' and '.join(kept)}" if kept else ""

    def _disconnect(self) -> None:
        """Whoever still waits for us hears that we are gone."""
        if self._is_gone:
            return
        self._is_gone = True
        self._transport.close()

    def _write(self, summary: Summary) -> bool:
        return self._results.write(SUMMARY, functools.partial(write_summary, summary))

    def _tells(self, transport: Transport) -> Transport:
        verbose, path = self._config.run.verbose, self._out / "logs" / "coordinator.log"
        if verbose:
            path.parent.mkdir(parents=True, exist_ok=True)
        return with_logging(transport, verbose, path)

    def interrupt(self, signal: str) -> None:
        """First: stop, keep what there is. Second: end at once."""
        self._events.put(Interrupted(signal))

    def taken(self, why: str) -> None:
        """All hosts are taken away: end in order, as by SIGTERM, which may reach us as well; from any thread."""
        self._events.put(Taken(why))

    def grow(self) -> None:
        """One worker more, where --initial-workers has left a place; from any thread, or a signal handler."""
        self._events.put(Grow())

    def stop(self, reason: str) -> None:
        """End the training as its own limits would; from any thread."""
        self._coordinator.stop(reason)

    @property
    def interrupted(self) -> str:
        """The signal that ended the run, if one did."""
        return self._interrupted or ("SIGTERM" if self._taken else "")

    def elapsed_s(self) -> float:
        """Since training started, on the coordinator's clock."""
        return self._coordinator.node.now()

    def _watch(self) -> None:
        """Until the run is over and nobody of the launcher is at work of its own. Raises RunFailed."""
        deadline = Deadline(self._coordinator)
        finished = False
        while not finished or self._launcher.busy():
            event = self._next_event(SHOW_SECONDS)
            self._status_file.write(self._coordinator.phase.value)
            match event:
                case None if self._coordinator.phase in (RunPhase.TRAINING, RunPhase.FINISHING):
                    self._display.show(self._statistics.snapshot(self._coordinator.node.now()))
                case Started(notes=notes):
                    self._display.begin(notes)
                    for _ in self._not_started if self._accept_joins else ():
                        self.grow()
                case Grow():
                    self._grow()
                case MemberEvent(who=who):
                    self._display.begin((event.line,))
                    if event.lost:
                        self._incarnations.lost(who, event.incarnation)
                case StatusLine(line=line):
                    self._display.begin((line,))
                case Finished():
                    finished = True
                case ProcessEnded(who=who, why=why) if self._survives(who):
                    self._coordinator.ended(who, why or self._too_early(who))
                    self._incarnations.ended(who, trains=self._trains, banned=self._coordinator.banned)
                case ProcessEnded(who=who) if who.kind != "worker" and self._coordinator.phase is RunPhase.OVER:
                    pass  # it has done all it had to
                case ProcessEnded(who=who, why=why) if why or self._coordinator.phase is not RunPhase.OVER:
                    self._fail(self._death(who, why or self._too_early(who)))
                case Failure():
                    self._fail(event)
                case Interrupted() | Taken():
                    self._called_off(event, deadline, finished=finished)
                    if finished:
                        return
            self._incarnations.start_due(trains=self._trains, needs_evaluator=self._needs_evaluator)
            if not finished:
                deadline.check()
            elif deadline.expired:
                return

    def _called_off(self, event: Interrupted | Taken, deadline: Deadline, *, finished: bool) -> None:
        """Raises RunFailed by a second signal, and where there is nothing yet to be ended in order."""
        second = False
        match event:
            case Interrupted(signal=signal):
                second, self._interrupted = bool(self._interrupted), signal
            case Taken(why=why):
                self._taken, signal = True, "SIGTERM"
                self._display.begin((why,))
        if finished:
            return
        ending = self._taken and self._coordinator.phase in (RunPhase.FINISHING, RunPhase.OVER)
        if second or not (ending or self._coordinator.phase is RunPhase.TRAINING):
            raise RunFailed(f"interrupted by {signal}")
        self._coordinator.stop(f"interrupted by {signal}")
        deadline.at_most(INTERRUPT_SECONDS[signal])

    def _survives(self, who: Party) -> bool:
        """Does the run, with what is started in its place?"""
        return self._coordinator.survives(who) and not self._incarnations.hopeless(who, trains=self._trains)

    def _grow(self) -> None:
        free = bool(self._not_started)
        why_not = "nobody trains now" if not self._trains else "" if free else "all places of --workers are taken"
        if why_not:
            self._display.begin((f"no worker is added: {why_not}",))
        else:
            self._incarnations.next(self._not_started.pop(0))

    @property
    def _trains(self) -> bool:
        return self._coordinator.phase is RunPhase.TRAINING and not self._coordinator.stopping

    @property
    def _needs_evaluator(self) -> bool:
        """May it still have something to do?"""
        going_on = self._coordinator.phase in (RunPhase.TRAINING, RunPhase.FINISHING)
        return going_on and party.EVALUATOR not in self._coordinator.banned

    def _next_event(self, seconds: float) -> Any:
        with contextlib.suppress(queue.Empty):
            ended = self._launcher.ended.get_nowait()
            self._incarnations.up.discard(ended.who)
            return ended
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def _fail(self, first: Failure) -> None:
        """Gather what else went wrong in the same moment, and name the root."""
        failures = [first]
        deadline = time.monotonic() + GRACE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            match self._next_event(min(left, 0.05)):
                case ProcessEnded(who=who, why=why) if why and not self._survives(who):
                    failures.append(self._death(who, why))
                case Failure() as another:
                    failures.append(another)
        raise RunFailed(root_of(failures))

    def _too_early(self, who: Party) -> str:
        what = "it joined the run" if self._coordinator.phase is RunPhase.GATHERING else "the run was over"
        return f"{who} ended before {what}"

    def _death(self, who: Party, why: str) -> Failure:
        steps = self._statistics.steps(who)
        after = f" after {steps} steps" if steps else ""
        # Who ended because the coordinator had is no cause of that; it may be heard of before the coordinator's own.
        last = self._coordinator.why_last(who)
        return Failure(who=who, cause=f"{why}{after}{last}", details="", rank=2 if COORDINATOR_GONE in why else 0)

    # ---- what the coordinator tells, on its own thread ---------------------------------------------------
    def joined(self, who: Party, hello: Hello) -> None:
        self._where[who] = f"{hello.host}, pid {hello.pid}"
        self._status_file.joined(who, hello)
        if who.kind == "worker":
            self._statistics.seated(who.index, hello.device, self._config.slowdown_of(who.index), hello.host)
        self._incarnations.joined(who, hello.incarnation)

    def started(self, plan: Plan) -> None:
        recipe = Recipe.from_json(plan.optimizer)
        if recipe.codecs.low_rank or recipe.store is not None:
            lacks = "what the store's other scripts have done" if recipe.store else "the factors of powersgd"
            self._incarnations.newcomers_not = f"lost workers are not started again: they would not know {lacks}"
            if self._not_started:
                self.failed(
                    party.COORDINATOR, f"--initial-workers: who comes late would not know {lacks}; leave it out", ""
                )
        self._statistics.started(recipe, plan.length, plan.transport)
        if recipe.scheme != self._config.run.scheme:  # a script has chosen its own
            self._status_file.scheme = recipe.scheme
            self._save(recipe.scheme)
        begun = (*self._refused, *filter(None, [self._start.note, self._batch_note]))
        snapshots = filter(None, [self._snapshots.note])
        robust = filter(None, [recipe.robust.note(plan.workers, plan.length)])
        secured = security_note(self._config, self._credentials, plan.allreduce)
        room = [GROWS.format(self._config.cluster)] if self._not_started and not self._accept_joins and grows() else []
        overlap = filter(None, [overlap_note(self._config, plan)])
        self._events.put(Started((*begun, *plan.notes, *overlap, *room, *robust, *snapshots, secured)))

    def _save(self, scheme: str) -> None:
        """Who watches the run, or simulates it anew, reads there which scheme it has."""
        with contextlib.suppress(ConfigError, OSError, LockLost):
            self._lock.fence.check()
            config = dataclasses.replace(self._config, run=dataclasses.replace(self._config.run, scheme=scheme))
            configuration.save(config, self._out / "config.toml")

    def progressed(self, rank: int, progress: Progress) -> None:
        self._statistics.progressed(rank, progress, self._coordinator.node.now())
        self._status_file.progressed(party.worker(rank), progress)

    def recorded(self, record: Record) -> None:
        if self._trace is not None:
            self._trace.append(record)
        self._hooks.append(record)
        self._status_file.recorded(record)
        self._statistics.recorded(record)
        if isinstance(record, Membership) and record.party == str(party.COORDINATOR):
            self._tell(f"coordinator {record.event}: {record.reason}")
        elif isinstance(record, Membership) and record.event in ("lost", "returned"):
            who = Party.parse(record.party)
            lost = record.event == "lost"
            after = f" after {self._statistics.steps(who)} steps" if who.kind == "worker" else ""
            new = who.kind == "worker" and self._statistics.incarnations(who) == 1
            what = f"lost{after}" if lost else "has come" if new else "is back"
            self._lost_at[who] = self._where[who]
            line = f"{who} ({self._where[who]}) {what}: {record.reason}"
            self._events.put(MemberEvent(who, self._coordinator.incarnation_of(who), line, lost))
        elif isinstance(record, Decision) and record.verdict == NOT_SAVED:
            self._tell(record.reason)
        elif isinstance(record, Membership) and record.event == "drained":
            who = Party.parse(record.party)
            after = f"after {self._statistics.steps(who)} steps"
            self._tell(f"{who} ({self._where[who]}) has gone home {after}: {record.reason}")
        elif isinstance(record, Membership) and record.event == "replaced":
            who = Party.parse(record.party)
            self._tell(f"{who} ({self._lost_at[who]}) was replaced: {record.reason}")

    def _tell(self, line: str) -> None:
        self._events.put(StatusLine(line))

    def failed(self, who: Party, cause: str, details: str) -> None:
        rank = 2 if "lost " in cause else 1
        self._events.put(Failure(who=who, cause=cause, details=details, rank=rank))

    def finished(self, reason: str, seconds: float) -> None:
        self._statistics.finished(reason, seconds)
        self._status_file.finished(reason)
        self._events.put(Finished())

    def _coordinator_failed(self, error: BaseException) -> None:
        self._events.put(Failure(who=party.COORDINATOR, cause=str(error) or repr(error), details="", rank=1))

    # ---- afterwards --------------------------------------------------------------------------------------
    def _leave_behind(self) -> Summary:
        while event := self._next_event(0.0):  # what came at the very end, such as a trace that could not be closed
            if isinstance(event, StatusLine):
                self._display.begin((event.line,))
        summary = self._statistics.summary()
        written = self._write(summary) and self._results.in_place(SUMMARY)
        if written and summary.test_accuracy is not None:
            self._results.write(CURVE, functools.partial(curve, self._out))
        return summary

    @property
    def left(self) -> dict[str, list[str]]:
        """The names of the files that the run has left, by folder."""
        return self._results.left
