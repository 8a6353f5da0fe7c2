"""Writes what a run leaves in its folder: the trace, the status, the summary, its configuration and a picture."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from paceline import config as configuration
from paceline.checkpoint.folder_store import MODEL
from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.coordination.control_messages import Hello, Progress
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, LockLost
from paceline.core.trace import Ended, Record
from paceline.observe.plots.run_figures import curve
from paceline.observe.runs.summary import FAILED, SUMMARY, Summary, write_summary
from paceline.observe.trace.hooks import Hook, Hooks
from paceline.observe.trace.trace_file import TRACE, TraceWriter
from paceline.runtime.run_folder.evaluation_times import EvaluationTimes
from paceline.runtime.run_folder.lock_file import LockFence
from paceline.runtime.run_folder.order_folder import OrderFolder
from paceline.runtime.run_folder.part_sizes import PartSizes
from paceline.runtime.run_folder.result_files import CONFIG, CURVE, Results
from paceline.runtime.run_folder.run_lock import set_aside
from paceline.runtime.run_folder.run_statistics import RunStatistics
from paceline.runtime.run_folder.status_file import StatusFile
from paceline.runtime.spec.job_spec import Recipe


class RunArtifacts:
    """Writes the files of one run: by the coordinator's thread while training goes on, by the supervisor's before and
    after."""

    def __init__(
        self,
        config: Config,
        token: str,
        fence: LockFence,
        statistics: RunStatistics,
        *,
        evaluates: bool,
        hooks: Sequence[Hook],
        say: Callable[[str], None],
    ) -> None:
        """`fence`: keeps it from writing once the folder is another run's. `say` shows a line to the user."""
        self._config, self._out, self._fence = config, Path(config.run.out), fence
        times = EvaluationTimes(config.evaluation.every, to_target=config.stop.target_accuracy > 0)
        self.statistics = statistics
        known = 0 if config.is_script else statistics.train_samples
        self.status = StatusFile(self._out, config.run.scheme, fence, times if evaluates else None, known)
        self.results = Results(self._out, token, say, fence)
        self.orders = OrderFolder(self._out, say)
        self.part_sizes = PartSizes(self._out, config.checkpoint.resume, self.results.write)
        self._hooks = Hooks(hooks)
        self._trace: TraceWriter | None = None  # while `kept`

    @contextlib.contextmanager
    def kept(self, lost: Callable[[str], None]) -> Iterator[None]:
        """Keeps trace and status while the block runs: from the beginning of the run to its end.

        `lost` is called with a line when the trace cannot be written any more. Raises ConfigError if --out cannot be
        written.
        """
        try:
            if self._config.checkpoint.resume == "auto":
                set_aside(self._out / TRACE)
            configuration.save(self._config, self._out / CONFIG)
            self.orders.clear()
            self.part_sizes.begin()
        except OSError as error:
            raise ConfigError(f"--out {self._out}: {error.strerror}") from None
        bytes_max = self._config.run.trace_bytes
        with (
            self.status.kept(),
            self._hooks,
            TraceWriter(self._out / TRACE, bytes_max=bytes_max, lost=lost) as self._trace,
        ):
            yield

    # ---- what is heard -----------------------------------------------------------------------------------
    def joined(self, who: Party, hello: Hello) -> None:
        """Notes that a party has joined."""
        self.status.joined(who, hello)
        if who.kind == "worker":
            self.statistics.seated(who.index, hello.device, self._config.slowdown_of(who.index), hello.host)

    def started(self, recipe: Recipe, length: int, transport: str, slices: Sequence[int]) -> None:
        """Notes that training begins; a script may have chosen another scheme than the configuration names."""
        self.statistics.started(recipe, length, transport, slices)
        if recipe.scheme != self._config.run.scheme:  # a script has chosen its own
            self.status.rename(recipe.scheme)
            self._save_scheme(recipe.scheme)

    def _save_scheme(self, scheme: str) -> None:
        """Saves the scheme of a script, for `paceline watch` and simulations of this run, which read it in the
        folder."""
        with contextlib.suppress(ConfigError, OSError, LockLost):
            self._fence.check()
            config = dataclasses.replace(self._config, run=dataclasses.replace(self._config.run, scheme=scheme))
            configuration.save(config, self._out / CONFIG)

    def progressed(self, rank: int, progress: Progress, now: float) -> None:
        """Notes a worker's progress at `now` seconds."""
        self.statistics.progressed(rank, progress, now)
        self.status.progressed(party.worker(rank), progress)

    def recorded(self, record: Record) -> None:
        """Writes a record to the trace and to hooks, and counts it."""
        if self._trace is not None:
            self._trace.append(record)
        self._hooks.append(record)
        self.status.recorded(record)
        self.statistics.recorded(record)
        self.part_sizes.recorded(record)

    def finished(self, reason: str, seconds: float) -> None:
        """Notes why and after how many seconds of training the run ended."""
        self.statistics.finished(reason, seconds)
        self.status.finished(reason)

    # ---- afterwards --------------------------------------------------------------------------------------
    def keep_failed(self, cause: str, seconds: float) -> None:
        """Notes that the run has failed after `seconds`; trace and summary say so."""
        reason = f"{FAILED}: {cause}"
        self.recorded(Ended(at=seconds, reason=reason))
        self.statistics.finished(reason, seconds)

    def kept_of_failed(self) -> list[str]:
        """Writes the summary of a run that has failed; returns the names of what is kept of it."""
        model = [f"{MODEL} (as evaluated last)"] if self.results.model else []
        return model + ([SUMMARY] if self._write(self.statistics.summary()) else [])

    def complete(self) -> Summary:
        """Writes the summary of a whole run and its picture; returns the summary."""
        summary = self.statistics.summary()
        written = self._write(summary) and self.results.in_place(SUMMARY)
        if written and summary.test_accuracy is not None:
            self.results.write(CURVE, functools.partial(curve, self._out))
        return summary

    def _write(self, summary: Summary) -> bool:
        """Writes a summary; returns False if no folder takes it."""
        return self.results.write(SUMMARY, functools.partial(write_summary, summary))
