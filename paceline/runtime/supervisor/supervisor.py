"""Supervises one run from beginning to end. This file puts the parts together, and takes them apart in the right order.

RunSupervisor      this file: makes all others, runs them, and ends every process whatever happens
EventLoop          waits for what happens, and carries out what follows        the thread that calls `run`
PartyIncarnations  starts processes, and the next incarnation of those that ended
CoordinatorEvents  turns what the coordinator reports into files and events    the coordinator's thread
RunArtifacts       trace, status, summary and picture in the run's folder
MessagesForUser    the lines that the user reads
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.checkpoint.redis_url import NO_SECRETS, StoreSecrets
from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.party import Party
from paceline.live.net.message_log import with_logging
from paceline.live.node.node import Node
from paceline.live.numpy_memory import PlainMemory
from paceline.live.protocol.transport import Transport
from paceline.live.same_host.temporary_folder import TemporaryFolder
from paceline.observe.plots.style import import_beside
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.progress import ProgressDisplay
from paceline.observe.trace.hooks import Hook, load
from paceline.runtime.checkpointing.resume import ResumePoint, find
from paceline.runtime.run_folder.run_lock import RunLock
from paceline.runtime.run_folder.run_recording import coordinator_recorder
from paceline.runtime.run_folder.run_statistics import RunStatistics
from paceline.runtime.run_folder.scale_up_signal import asked_to_grow
from paceline.runtime.server.snapshot_store import SnapshotStore
from paceline.runtime.spec.coordinator_setup import CoordinatorSetup
from paceline.runtime.spec.launcher import Launcher
from paceline.runtime.spec.process_spec import ProcessSpec, make_specs
from paceline.runtime.spec.setup_notes import check_batch_size, task_notes
from paceline.runtime.supervisor.artifacts import RunArtifacts
from paceline.runtime.supervisor.coordinator_events import CoordinatorEvents
from paceline.runtime.supervisor.coordinator_factory import make_coordinator
from paceline.runtime.supervisor.credentials import Credentials
from paceline.runtime.supervisor.event_loop import EventLoop, not_started_at_first
from paceline.runtime.supervisor.events import EventQueue, Failure, Grow, Interrupted, StatusLine, Taken
from paceline.runtime.supervisor.incarnations import PartyIncarnations
from paceline.runtime.supervisor.messages import RunHeader
from paceline.runtime.supervisor.phase_deadlines import RunFailed

END_SECONDS = 0.8
"""Seconds that processes get to end by themselves after the connections are closed."""
SAVE_SECONDS = 2.0  # the evaluator of a run that has failed may take to save the model


class RunSupervisor:
    """Supervises one run. `run()` blocks until it is over; `interrupt()` may be called from a signal handler."""

    def __init__(
        self,
        config: Config,
        transport: Callable[[str, Callable[[BaseException], None]], Transport],
        launcher: Launcher,
        display: ProgressDisplay,
        *,
        evaluator: bool = True,
        script: bool = False,
        credentials: Credentials | None = None,
        hooks: Sequence[Hook] = (),
        store_secrets: StoreSecrets = NO_SECRETS,
        accept_joins: bool = False,
    ) -> None:
        """`transport` makes the coordinator's from the run's token and a place to report errors to.

        `credentials` of all parties, if connections are under TLS; they end with the run. `hooks` besides --hook.
        `store_secrets` of --store. `accept_joins`: workers come by themselves, also while training goes on.

        script: workers and evaluator are loops of one's own, of whose data nothing is known here.
        Raises ConfigError when the data, a hook or a store cannot be had.
        """
        all_hooks = [*load(config.run.hook, config.run.out), *hooks]
        import_beside()
        train_samples = launcher.prepare(config)
        if trains := evaluator and not script:
            check_batch_size(config, train_samples)
        self._config, self._launcher, self._display, self._credentials = config, launcher, display, credentials
        token = secrets.token_hex(16)
        self._events, self._lock = EventQueue(launcher.ended), self._locked(token)
        make = functools.partial(transport, token, self._coordinator_failed)
        start, notes, self._transport = self._found(make, store_secrets, finds=evaluator or script)
        notes += filter(None, [start.note, *(task_notes(config, train_samples) if trains else ())])
        statistics = RunStatistics(config, train_samples, begun_at=start.samples)
        self._artifacts = RunArtifacts(
            config, token, self._lock.fence, statistics, evaluates=evaluator, hooks=all_hooks, say=self._say
        )
        setup = CoordinatorSetup(
            config=config,
            train_samples=train_samples,
            evaluator=evaluator,
            trains=trains,
            done=start.done,
            shares=start.shares,
            behind=start.samples,
        )
        self._recorder = recorder = coordinator_recorder(setup, self._say)
        self._transport = recorder.transport(self._transport)
        cluster, node = config.cluster, Node(self._transport, PlainMemory(), clock=recorder.clock)
        self._snapshots = SnapshotStore(self._transport, node, cluster.snapshot_every, copies=cluster.ack == "replica")
        self._incarnations = PartyIncarnations(config, launcher, self._say, self._has_started, self._part_size)
        free = bool(not_started_at_first(config)) and not accept_joins
        header = RunHeader(config, notes, self._snapshots, credentials, has_free_places=free)
        listener = CoordinatorEvents(config, self._artifacts, self._events, self._incarnations, header, node.now)
        self._coordinator = make_coordinator(
            self._transport, node, listener, recorder.snapshots(self._snapshots), setup, observer=recorder
        )
        self._loop = self._make_loop(accept_joins=accept_joins)
        self._is_gone = False  # for everybody else
        self._make_specs = self._spec_maker(token, store_secrets, start.path, evaluator=evaluator)

    def _part_size(self, rank: int) -> int:
        """Returns the samples that the memory of a worker holds at once; 0 where nobody has found an end."""
        return self._artifacts.part_sizes.of(rank)

    def _make_loop(self, *, accept_joins: bool) -> EventLoop:
        """Returns the event loop. It comes last: it needs the coordinator, which needs the events."""
        return EventLoop(
            self._config,
            self._coordinator,
            self._incarnations,
            self._events,
            self._artifacts,
            self._display,
            accept_joins=accept_joins,
        )

    def _spec_maker(
        self, token: str, store_secrets: StoreSecrets, resume: str, *, evaluator: bool
    ) -> Callable[..., dict[Party, ProcessSpec]]:
        """Returns `make_specs` with all that is known before the coordinator has an address."""
        keys = self._credentials.path if self._credentials else ""
        specs = functools.partial(make_specs, self._config, token=token, store_secrets=store_secrets)
        return functools.partial(specs, credentials=keys, resume=resume, evaluator=evaluator)

    def _locked(self, token: str) -> RunLock:
        """Returns the lock on the folder, renewed from now on. Raises ConfigError where another run has it."""
        out, waits = Path(self._config.run.out), self._config.checkpoint.resume == "auto"
        lock = RunLock(out, token, waits=waits, say=self._say)
        lock.keep_renewing(self._folder_lost)
        return lock

    def _found(
        self, transport: Callable[[], Transport], store_secrets: StoreSecrets, *, finds: bool
    ) -> tuple[ResumePoint, list[str], Transport]:
        """Returns where the run begins, what could not be resumed, and the transport. If that fails, the lock is
        released."""
        try:
            start, notes = find(self._config, store_secrets) if finds else (ResumePoint(self._config), [])
            start = start.as_kept() if self._config.stop.until_stopped else start
            return start, notes, self._with_log(transport())
        except BaseException:
            self._lock.release()
            raise

    def _with_log(self, transport: Transport) -> Transport:
        """Returns the transport, which logs messages if --verbose asks for that."""
        verbose, path = self._config.run.verbose, Path(self._config.run.out, "logs", "coordinator.log")
        if verbose:
            path.parent.mkdir(parents=True, exist_ok=True)
        return with_logging(transport, verbose, path)

    # ---- the run -----------------------------------------------------------------------------------------
    def run(self) -> Summary:
        """Runs to the end, once, and returns the summary. Raises RunFailed with the root cause.

        No process of the launcher is left in either case.
        """
        try:
            return self._run()
        finally:
            self._lock.release()

    def _run(self) -> Summary:
        """Starts everybody, handles events, and takes everything down again in order."""
        with (
            asked_to_grow(self.grow if not_started_at_first(self._config) else None),
            self._artifacts.kept(lost=lambda line: self._events.put(StatusLine(line))),
            TemporaryFolder() as folder,
        ):
            try:
                address = self._coordinator.open()
                self._incarnations.begin(
                    self._make_specs(coordinator=address, folder=folder), not_started_at_first(self._config)
                )
                self._loop.run()
            except RunFailed as error:
                raise RunFailed(f"{error}{self._keep(str(error))}") from None
            finally:
                # In this order: the snapshots' thread uses the transport; a closed transport tells every process that
                # the run is over; only then does the launcher kill who is left; the keys go last.
                self._snapshots.close()
                self._disconnect()
                self._recorder.close()
                self._launcher.end(END_SECONDS)
                self._display.close()
                if self._credentials:
                    self._credentials.remove()
        self._loop.show_rest()
        return self._artifacts.complete()

    def _keep(self, cause: str) -> str:
        """Keeps what there is of a run that has failed; returns the end of the line that says so."""
        if self._loop.signal or not self._artifacts.statistics.has_started:
            return ""
        self._artifacts.keep_failed(cause, self.elapsed_s())
        self._disconnect()  # so that the evaluator hears of it, and saves the model that it looked at last
        self._loop.await_evaluator(SAVE_SECONDS)
        kept = self._artifacts.kept_of_failed()
        return f"; kept: {' and '.join(kept)}" if kept else ""

    def _disconnect(self) -> None:
        """Closes the transport, so that everybody who still waits for the coordinator hears that it is gone."""
        if not self._is_gone:
            self._is_gone = True
            self._transport.close()

    # ---- asked from outside ------------------------------------------------------------------------------
    def interrupt(self, signal: str) -> None:
        """Ends the run: the first time in order, keeping what there is; the second time at once."""
        self._events.put(Interrupted(signal))

    def taken(self, why: str) -> None:
        """Ends the run in order, as SIGTERM does, because all hosts are taken away. Any thread may call it."""
        self._events.put(Taken(why))

    def grow(self) -> None:
        """Starts one worker more, where --initial-workers has left room. Any thread or signal handler may call it."""
        self._events.put(Grow())

    def stop(self, reason: str) -> None:
        """Ends the training as its own limits would. Any thread may call it."""
        self._coordinator.stop(reason)

    @property
    def interrupted(self) -> str:
        """Returns the signal that ended the run, or ""."""
        return self._loop.interrupted

    def elapsed_s(self) -> float:
        """Returns the seconds since training started, on the coordinator's clock."""
        return self._coordinator.node.now()

    @property
    def left(self) -> dict[str, list[str]]:
        """Returns the names of the files that the run has left, by folder."""
        return self._artifacts.results.left

    # ---- told by others, on their threads ----------------------------------------------------------------
    def _say(self, line: str) -> None:
        """Shows a line to the user."""
        self._display.begin((line,))

    def _has_started(self, who: Party, incarnation: int) -> None:
        """Reports that a process of a later incarnation runs: it has to connect in time."""
        self._coordinator.started(who, incarnation)

    def _folder_lost(self, why: str) -> None:
        """Ends the run, because another run has taken its folder."""
        self._events.put(Failure(who=party.COORDINATOR, cause=f"{why}: this run ends", kind=FailureKind.ENDED))

    def _coordinator_failed(self, error: BaseException) -> None:
        """Ends the run with an error of the coordinator's thread."""
        cause = str(error) or repr(error)
        self._events.put(Failure(who=party.COORDINATOR, cause=cause, kind=FailureKind.ERROR))
