"""Makes one run in virtual time; it leaves what a live run leaves: trace, summary, model, picture.

`VirtualRun` puts together the simulator (`sim/`), a workload, and the parts of a live run that know no process:
statistics, results, evaluation. The command line makes one for each simulated run.
"""

from __future__ import annotations

import functools
import math
import secrets
import time
from pathlib import Path
from typing import Any

import torch

from paceline import config as configuration
from paceline.checkpoint.folder_store import MODEL
from paceline.core.collective import PEERS
from paceline.core.coordination.control_messages import Progress
from paceline.core.coordination.lifecycle import TARGET_REACHED
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.paramserver.gradient_check import SliceGradientCheck
from paceline.core.samples.batch_limits import own_batches
from paceline.core.samples.sample_leases import Leases
from paceline.core.sharding import lay_out, tensors_by_slice
from paceline.core.trace import Ended, Evaluated, LostWork, MemberChange, Record
from paceline.core.vector import Ghost, cut
from paceline.engine.data.batches import Batches, BatchStream, Indices
from paceline.engine.data.partition_plan import PartitionPlan, make_partition, parse_partition
from paceline.engine.specs import MOMENTUM
from paceline.engine.vectors.coordinate_sort import Sorting
from paceline.engine.vectors.flat import norm
from paceline.observe.plots.run_figures import curve
from paceline.observe.runs.summary import CHANGES, SUMMARY, TARGET_LOSS, Summary, write_summary
from paceline.observe.terminal.progress import ProgressDisplay
from paceline.observe.trace.hooks import Hooks, load
from paceline.observe.trace.trace_file import TraceWriter
from paceline.runtime.run_folder.result_files import CURVE, Results
from paceline.runtime.run_folder.run_statistics import RunStatistics
from paceline.runtime.simulated.codec_transport import Encoding, MeanEncoding
from paceline.runtime.simulated.counters import Meters
from paceline.runtime.simulated.evaluator import Judge
from paceline.runtime.simulated.sample_counts import Counted
from paceline.runtime.simulated.sample_leases import Dealt, SimulatedSampleLeases
from paceline.runtime.simulated.setup import SimulationSetup, tensors_of
from paceline.runtime.simulated.workload import Ghosts, Sizes, Training, VirtualWork
from paceline.runtime.spec.setup_notes import check_batch_size, setup_notes
from paceline.runtime.worker.train_loop import build_model, load_data, recipe_of
from paceline.sim import Simulation
from paceline.sim.checking.invariants import InvariantBroken
from paceline.sim.cluster.collective_time import choice_for
from paceline.sim.faults.coordination.members import RunLost
from paceline.sim.kernel.vectors import CountedGhost, PassCounter, ghost_norm, memory_for
from paceline.sim.kernel.workload import ModelShard

SHOW_EVENTS = 256
"""Events between two looks at the wall clock, whether the display is due."""
SHOW_SECONDS = 0.25
"""Wall-clock seconds between two updates of the display."""
WATCHED_MAX = 256
"""Workers up to which every invariant is checked as the run goes on; beyond, that would take most of the time."""


class RunBroken(PacelineError):  # noqa: N818  as RunFailed
    """Is raised when the run cannot go on: a fault of the scheme or of the simulator, or a cluster without workers."""


class VirtualRun:
    """Makes one run. `run()` blocks until it is over; `interrupt()` may be called from a signal handler."""

    def __init__(self, setting: SimulationSetup, display: ProgressDisplay) -> None:
        """Loads the data and builds the simulation. Raises ConfigError if data is missing or schemes do not fit."""
        config, cluster = setting.config, setting.cluster
        torch.set_num_threads(config.cluster.threads)
        self._setting, self._config, self._display = setting, config, display
        self._splits = load_data(config)
        if not setting.timing_only:
            check_batch_size(config, len(self._splits.train))
        self._recipe = recipe_of(config, len(self._splits.train))
        self._samples_max = config.stop.samples_of(len(self._splits.train))
        self._meters, self._statistics = Meters(cluster.workers), RunStatistics(config, len(self._splits.train), "sim")
        self._trace: TraceWriter | None = None
        self._hooks = Hooks(load(config.run.hook, config.run.out))
        self._judge = None if setting.timing_only else Judge(config, self._splits)
        self._results = Results(Path(config.run.out), secrets.token_hex(16), lambda line: display.begin((line,)))
        self.evaluations: list[Evaluated] = []
        self._looked_after = -1  # events of the simulation before the last evaluation
        self._joined: list[Record] = []
        self._reason = self._interrupted = ""
        self._finished: set[int] = set()  # have made a last exchange, which no work follows that would count it
        self._countdown, self._shown = SHOW_EVENTS, time.monotonic()
        self._training: Training | None = None
        # These three build on one another: leases decide whether samples are counted, and the simulation needs both.
        self._lending = self._make_lending()
        self._counted = self._make_counted()
        self._expelled: set[int] = set()
        self.simulation = self._simulate()
        placements = zip(cluster.worker_placements(), setting.slowdowns, strict=True)
        for rank, (placement, slowdown) in enumerate(placements):
            device = placement.device.name if placement.device else ""
            host = (
                "" if placement.host_name == f"worker-{rank}" else placement.host_name
            )  # each has one, and no name was given
            self._statistics.seated(rank, device, slowdown, host)
            self._joined.append(
                MemberChange(at=0.0, party=f"worker {rank}", event="joined", device=device, host=placement.host_name)
            )
        if self.simulation.sharing is not None:  # then it matters who is beside whom
            for shard, at in enumerate(cluster.server_placements()):
                self._joined.append(MemberChange(at=0.0, party=f"server {shard}", event="joined", host=at.host_name))
        self._behind = set(range(cluster.workers)) if setting.rounds else set()
        self._meters.on_steps = self._stepped if config.stop.steps or setting.rounds else None

    @property
    def interrupted(self) -> str:
        """Returns the signal that ended the run, or ""."""
        return self._interrupted

    @property
    def left(self) -> dict[str, list[str]]:
        """Returns the names of the files that the run has left, by folder."""
        return self._results.left

    @property
    def spacing(self) -> float | None:
        """Returns the steps of a worker between two exchanges, on average; None where there was no exchange."""
        return self._work.spacing.mean

    @property
    def model_length(self) -> int:
        """Returns the number of parameters of the model."""
        return len(self._w0)

    @property
    def remembered(self) -> int:
        """Returns how many numbers the optimizer keeps for a model of that length."""
        optimizer, length = self._config.optimizer, self.model_length
        if optimizer.name in MOMENTUM:
            return length if optimizer.momentum else 0
        return 2 * length + 1

    def interrupt(self, signal: str) -> None:
        """Ends the run: first in order, keeping what there is; the second time at once, by KeyboardInterrupt."""
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = signal

    # ---- the run -----------------------------------------------------------------------------------------
    def run(self, *, leave: bool = True) -> Summary:
        """Runs to the end, and returns the summary. `leave`: write into --out what a live run leaves there.

        Raises ConfigError if --out cannot be written, RunBroken if the run cannot go on.
        """
        config, out = self._config, Path(self._config.run.out)
        if not leave:
            return self._go_on()
        try:
            out.mkdir(parents=True, exist_ok=True)
            configuration.save(config, out / "config.toml")
        except OSError as error:
            raise ConfigError(f"--out {out}: {error.strerror}") from None
        if not self._setting.timing_only and (notes := setup_notes(config, self._recipe, len(self._splits.train))):
            self._display.begin(notes)
        with self._hooks, TraceWriter(out / "trace.jsonl", bytes_max=self._config.run.trace_bytes) as self._trace:
            try:
                summary = self._go_on()
            finally:
                if self._judge is not None and self._judge.looked_at is not None:
                    self._results.write(MODEL, self._judge.save)
        written = self._results.write(SUMMARY, functools.partial(write_summary, summary))
        if written and self._results.in_place(SUMMARY) and summary.test_accuracy is not None:
            self._results.write(CURVE, functools.partial(curve, out))
        return summary

    def _go_on(self) -> Summary:
        """Simulates until a stop rule holds. Raises RunBroken."""
        sim, seconds = self.simulation, self._config.stop.seconds or math.inf
        try:
            self._statistics.started(self._recipe, self.model_length)
            for record in self._joined:
                self._note(record)
            sim.run(until=seconds, max_events=self._setting.events_max or math.inf, stop=self._after_event)
            self._end(seconds)
            self._show()
        except InvariantBroken as broken:
            raise RunBroken(f"{sim.scheme.name}: {broken}") from broken
        except RunLost as lost:
            raise RunBroken(f"{sim.scheme.name}: {lost}") from lost
        finally:
            self._display.close()
        return self._statistics.summary()

    def _end(self, seconds_max: float) -> None:
        """Notes why the run ended, and evaluates the last model. Raises RunBroken if no rule ended it."""
        sim = self.simulation
        at = sim.now
        if not self._reason:
            stop = self._config.stop
            banned = sim.members.banned
            if stop.steps and all(m.steps >= stop.steps or r in banned for r, m in enumerate(self._meters.of)):
                self._reason = "steps"
            elif sim.events >= (self._setting.events_max or math.inf):
                self._reason = "events"
            elif not len(sim.heap):
                raise RunBroken(f"{sim.scheme.name}: {self._why_stuck(at)}")
            else:
                self._reason, at = "seconds", seconds_max
        self._note(Ended(at=at, reason=self._reason))
        if self._reason != "events" and not self._setting.rounds:  # what roles hold is looked at while they train
            sim.finish(self._reason)
            self._finished = {
                rank for rank, m in enumerate(self._meters.of) if m.steps and not self._statistics.is_lost(rank)
            }
        if self._lending is not None:
            self._lending.record()
        for used in sim.cpu_used(at):
            self._note(used)
        if self._judge is not None and self._looked_after != sim.events:  # an exchange may follow the last sample
            self._look(at)
        self._tell()
        self._statistics.finished(self._reason, at)

    def _why_stuck(self, at: float) -> str:
        """Returns why nothing is left to happen though no stop rule holds."""
        if any(party.here for party in self.simulation.world.workers):
            return f"nothing is left to happen after {at:.3f} s, and the run is not over"
        return (
            f"the cluster's last worker was gone after {at:.3f} s, and none comes back: end the run earlier "
            "(--seconds), or let the cluster file bring one back"
        )

    def _after_event(self, sim: Simulation) -> bool:
        """Is called after each event; returns True if the run is over."""
        total = self._meters.total
        if self._counted.over or self._all_done():
            self._reason = self._config.stop.counted(len(self._splits.train))
        elif self._judge is not None and self._judge.due(sim.now, total):
            self._look(sim.now)
        self._countdown -= 1
        if self._interrupted:
            self._reason = f"interrupted by {self._interrupted}"
        elif not self._countdown:
            self._countdown = SHOW_EVENTS
            self._show_sometimes()
        return bool(self._reason)

    def _all_done(self) -> bool:
        """Returns True if the epochs of leased data are over."""
        reached = self._lending is not None and 0 < self._samples_max <= self._meters.total
        return reached and self._lending is not None and self._lending.reached(self._samples_max)

    def _stepped(self, rank: int, steps: int) -> None:
        """Is called when a worker has made a step: it leaves after --steps, and `rounds` end the run when the last one
        is done."""
        if 0 < self._config.stop.steps <= steps:
            self.simulation.leave(rank, soon=False)
        rounds = self._setting.rounds
        if rounds and rank in self._behind and rounds.seen(steps, self._work.exchanges[rank]):
            self._behind.discard(rank)
            if not self._behind:
                self._reason = "rounds"

    def _look(self, at: float) -> None:
        """Evaluates the model, tells the scheme's coordinator, and ends the run at the target accuracy."""
        assert self._judge is not None
        assert self._training is not None
        w, statistics = self.simulation.model(), self._training.mean_statistics()
        judged = self._judge.look(at, self._meters.total, w, statistics)
        self._looked_after = self.simulation.events
        self.evaluations.append(judged)
        self._note(judged)
        self.simulation.judged(judged.accuracy)
        target = self._config.stop.target_accuracy
        if target and judged.accuracy >= target and not self._reason:
            self._reason = TARGET_REACHED
        if 0 < judged.loss <= self._config.stop.target_loss and not self._reason:
            self._reason = TARGET_LOSS

    # ---- what is told ------------------------------------------------------------------------------------
    def _note(self, record: Record) -> None:
        """Takes every record of the run: for counters, statistics, trace and hooks."""
        if isinstance(record, MemberChange) and (lost := self._lost_with(record)) is not None:
            self._note(lost)  # before others may train it
        self._meters.record(record)
        if isinstance(record, MemberChange):
            self._counted.heard(record)
        if isinstance(record, MemberChange) and record.event in CHANGES:
            self._tell()  # what is left of it must not depend on when the screen was written
        self._statistics.recorded(record)
        if self._trace is not None:
            self._trace.append(record)
            self._hooks.append(record)

    def _lost_with(self, record: MemberChange) -> LostWork | None:
        """Returns what a lost worker had handed to itself, as one that spoke for others; None where that is nothing."""
        who, _, rank = record.party.partition(" ")
        if who != "worker" or record.event != "lost":
            return None
        work = self.simulation.world.workers[int(rank)].role.held_alone()
        if not work.samples:
            return None
        return LostWork(at=record.at, party=record.party, rank=int(rank), steps=work.steps, samples=work.samples)

    def _show_sometimes(self) -> None:
        """Updates the display, if SHOW_SECONDS have passed."""
        now = time.monotonic()
        if now - self._shown >= SHOW_SECONDS:
            self._shown = now
            self._tell()
            self._show()

    def _show(self) -> None:
        """Updates the display."""
        self._display.show(self._statistics.snapshot(self.simulation.now))

    def _tell(self) -> None:
        """Brings the statistics up to date with the counters of all workers."""
        for rank, meter in enumerate(self._meters.of):
            party = self.simulation.world.workers[rank]
            progress = Progress(
                steps=meter.steps,
                samples=meter.samples,
                exchanges=self._work.exchanges[rank] + (rank in self._finished),
                seconds_computing=meter.computing,
                seconds_waiting=meter.waiting,
                seconds_communicating=meter.communicating,
                bytes_up=party.sent,
                bytes_down=party.received,
            )
            self._statistics.progressed(rank, progress, self.simulation.now)

    # ---- what takes part ---------------------------------------------------------------------------------
    def _simulate(self) -> Simulation:
        """Builds the workload, then the simulation."""
        setting, recipe = self._setting, self._recipe
        self._work: VirtualWork = self._ghosts() if setting.timing_only else self._train()
        return Simulation(
            recipe.make_scheme(),
            self._w0,
            self._work,
            cluster=setting.cluster,
            update_factory=self._rule,
            seed=recipe.seed,
            trace=self._note,
            watched=setting.cluster.workers <= WATCHED_MAX,
            mean=self._carrier(),
            passage=self._encoding() if recipe.codecs.in_messages else None,
            gate=self._gate,
            own_results=self._config.own_result_rule(),
            rounds=None if setting.timing_only else recipe.robust.rounds(Sorting()),
            coding=self._mean_encoding(),
            lender=self._lending,
            shards=self._shards(),
            limit=self._counted,
        )

    def _gate(self, shard: int) -> SliceGradientCheck | None:
        """Returns the gradient check of a shard; None where gradients have no numbers, and all count as finite."""
        timing_only, cluster = self._setting.timing_only, self._setting.cluster
        if timing_only and not any(fault.kind == "bad-results" for fault in cluster.faults):
            return None
        of = ghost_norm if timing_only else norm
        return self._recipe.gate.gate(of, cluster.workers, shard, self._gated, self._expel)

    def _gated(self, record: Record) -> None:
        """Takes what a gradient check found: the invariants are told first."""
        (self.simulation.noted if self.simulation.invariants else self._note)(record)

    def _expel(self, rank: int, reason: str) -> None:
        """Expels a worker, unless the run could not do without it, as in a live run: servers go on rejecting what it
        sends."""
        sim = self.simulation
        here = {other for other, party in enumerate(sim.world.workers) if party.here} - self._expelled
        if rank in here and len(here) > self._config.cluster.min_workers and not self._carrier():
            self._expelled.add(rank)
            sim.expel(rank, f"{reason}; it does not come back")

    def _encoding(self) -> Encoding:
        """Returns the codecs of messages, with stages for all parties."""
        servers, length = self._setting.cluster.servers, len(self._w0)
        tensors = () if self._setting.model_length else tensors_of(self._config)
        return Encoding(
            self._recipe.codecs,
            self._recipe.make_scheme(),
            memory_for(self._w0),
            tensors=tensors,
            slices=[shard.part for shard in self._shards()] or (cut(length, servers) if servers else ()),
        )

    def _mean_encoding(self) -> MeanEncoding | None:
        """Returns the codecs of means among workers; None if nothing is encoded."""
        codecs, scheme, memory = self._recipe.codecs, self._recipe.make_scheme(), memory_for(self._w0)
        tensors = (len(self._w0),) if self._setting.model_length else tensors_of(self._config)
        coders = [codecs.coder(memory, scheme, tensors) for _ in range(self._setting.cluster.workers)]
        found = [coder for coder in coders if coder is not None]
        return MeanEncoding(found) if found else None

    def _carrier(self) -> str:
        """Returns the schedule by which the workers carry means; "" where the servers do."""
        asked, cluster = self._config.cluster.allreduce, self._setting.cluster
        codecs = self._recipe.codecs
        by_servers = codecs.in_messages and cluster.servers and asked == "auto"  # as `choose_allreduce` has it
        if by_servers or not self._recipe.make_scheme().uses_mean(cluster.servers):
            return ""
        if asked == "auto":
            name = choice_for(cluster, codecs.bytes_of_mean(len(self._w0)), gathered=codecs.gathers).name
        else:
            name = asked
        if name == "servers":
            return ""
        return name if name in PEERS else "ring"  # which torch's own are timed as

    def _rule(self, length: int) -> Any:
        """Returns an update rule for `length` parameters; with --timing-only it changes nothing, in one pass."""
        if self._setting.timing_only:
            return (lambda w, g, samples: w - g) if self._setting.cluster.shares_cores else lambda w, g, samples: w
        assert self._training is not None
        return self._recipe.make_rule(self._training.flat.tensors)

    def _shards(self) -> tuple[ModelShard, ...]:
        """Returns the shards as live servers have them: cut between tensors where the optimizer needs whole ones."""
        servers = self._setting.cluster.servers
        if self._training is None or not servers:
            return ()
        recipe, tensors = self._recipe, self._training.flat.tensors
        layout = lay_out(self.model_length, servers, tensors=tensors if recipe.optimizer.needs_tensors else ())
        within = tensors_by_slice(layout, tensors) if recipe.optimizer.needs_tensors else [[]] * servers
        pairs = zip(layout.slices, within, strict=True)
        return tuple(ModelShard(part, functools.partial(recipe.make_rule, lengths)) for part, lengths in pairs)

    def _ghosts(self) -> Ghosts:
        """Returns work without numbers, and sets the initial weights to a Ghost of the model's length."""
        config, setting, workers = self._config, self._setting, self._setting.cluster.workers
        length = self._setting.model_length or sum(tensors_of(config))
        self._w0: Any = CountedGhost(length, PassCounter()) if setting.cluster.shares_cores else Ghost(length)
        # More workers than samples cannot share them; how long a step takes does not depend on that.
        shared = setting.at_hand and workers <= len(self._splits.train) and not self._lending
        batches = self._lending or Sizes(self._shares() if shared else None, config.batch_of)
        step_s = self._setting.cluster.step_s
        return Ghosts(
            step_s,
            batches,
            config.data.batch_size,
            workers=workers,
            memory_length=self.remembered,
            counted=self._counted,
        )

    def _train(self) -> Training:
        """Returns work with numbers, and sets the initial weights to those of the model."""
        config, setting = self._config, self._setting
        self._training = Training(
            build_model(config, self._splits),
            self._recipe,
            setting.cluster.step_s,
            self._streams(),
            batch_size=config.data.batch_size,
            buffers=config.model.buffers,
            precision=config.model.precision,
            counted=self._counted,
            samples_seen=self._samples_seen,
        )
        self._w0 = self._training.flat.weights()
        return self._training

    def _samples_seen(self, rank: int) -> int:
        """Returns the samples of all workers, as worker `rank` knows them.

        The rule of a worker that applies its own updates is told as well, since it sees its own gradients alone.
        """
        role: Any = self.simulation.worker(rank)
        seen = self._counted.seen(rank)
        if role.updates_alone:
            role.update.samples_seen = seen
        return seen

    def _make_counted(self) -> Counted:
        """Returns the counter of samples; leased samples have limits of their own."""
        return Counted(
            self._recipe.make_scheme(),
            lambda rank: self.simulation.worker(rank),
            self._meters,
            limit=0 if self._lending else self._samples_max,
            batch_size=self._config.data.batch_size,
            batch_limits=self._config.batch_limits(),
        )

    def _make_lending(self) -> SimulatedSampleLeases | None:
        """Returns the leases of --partition queue; None for fixed parts."""
        partition, samples = parse_partition(self._config.data.partition), len(self._splits.train)
        if not partition.leased:
            return None
        workers = self._setting.cluster.workers
        leases = Leases(samples, partition.lease_size(samples, workers, self._config.data.batch_size))
        return SimulatedSampleLeases(leases, self._config.batch_of, lambda: self.simulation.now, self._note)

    def _streams(self) -> list[BatchStream]:
        """Returns the mini-batches of each worker, by rank."""
        data, size_of, ranks = self._splits.train, self._config.batch_of, range(self._setting.cluster.workers)
        if self._lending:
            orders: dict[int, Indices] = {}
            return [
                Dealt(data, self._lending, rank, size_of(rank), seed=self._recipe.seed, orders=orders) for rank in ranks
            ]
        shares = self._shares()
        return self._counted.shared([Batches(data, shares, rank, size_of(rank)) for rank in ranks], len(data))

    def _shares(self) -> PartitionPlan:
        """Returns which worker has which samples."""
        train, seconds, config = self._splits.train, self._setting.cluster.seconds_per_step(), self._config
        batches = own_batches(config.data.batch_size, config.batch_limits())
        return make_partition(
            config.data.partition, len(train), len(seconds), train.y.numpy(), self._recipe.seed, seconds, batches
        )
