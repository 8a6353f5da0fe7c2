"""Writes the checkpoints of a run, in the evaluator's process: no worker and no server stops for them.

Where servers hold the model they are asked for one version, two ahead of the one they are at; each keeps its slices
when they get there, and so does each worker what it remembers. A worker that was past that version when it heard of
it has all try again further ahead. Where the workers hold one model, one of them shows its own; where each has
another, the weights are those that the evaluator has looked at last.

    evaluator                       servers (version)          workers (clock)
    Capture 12 to all               at 10                      at 10 and 11
                                    reach 12: keep             answered up to 12: keep
    reads the kept states           go on, 13, 14, ...         go on
    Capture FORGET to all           free what was kept         free what was kept
    writes files, rotates

All but the last line is done in a thread of its own (`background_capture.py`): with rounds of many steps the version
that was asked for is two rounds away, and the model is evaluated meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from paceline.checkpoint.base_store import CheckpointStore
from paceline.checkpoint.folder_store import CHECKPOINTS, MODEL, FolderStore
from paceline.checkpoint.redis_store import RedisStore, StoreTimeoutError
from paceline.checkpoint.redis_url import NO_SECRETS, StoreSecrets
from paceline.config import Config
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.loop_messages import SharesLeft
from paceline.core.coordination.sample_leases import FIRST
from paceline.core.effects import SERVERS, Data
from paceline.core.errors import ConfigError, Diverged, PeerLost, TimedOut, Undone
from paceline.core.fault_tolerance.checkpoints import kept_tables, with_forgotten
from paceline.core.fault_tolerance.snapshots import AHEAD, FORGET
from paceline.core.samples.sample_leases import SampleRanges
from paceline.core.samples.shares_kept import KeptShare, shares_kept, trained_before
from paceline.core.sharding import Layout
from paceline.core.trace import NOT_SAVED, Decided
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.plain_names import plain_state
from paceline.engine.vectors.flat import Flat
from paceline.live.control.handlers import PartyCallbacks
from paceline.live.control.session import Session
from paceline.live.node.published_state import STATE
from paceline.live.state.capture_request import CaptureRequest
from paceline.live.state.slice_state import CAPTURE, CHECKPOINT, LOCK_STEP, VERSION, Mixed, kept
from paceline.runtime.checkpointing.background_capture import BackgroundCapture
from paceline.runtime.checkpointing.checkpoint_validation import CHECKPOINT_ID, OPTIMIZER, dealt, of_shares
from paceline.runtime.checkpointing.resume import identity, store_of, worker_files
from paceline.runtime.checkpointing.slice_capture import WEIGHTS, common_names, on_one_scale, role_of_model
from paceline.runtime.checkpointing.slice_numbers import of_model
from paceline.runtime.checkpointing.worker_position import AT_ONCE
from paceline.runtime.checkpointing.worker_state import BUFFERS, by_round
from paceline.runtime.run_folder.lock_file import LockFence

AHEAD_MAX = 128
"""Versions ahead at which attempts to catch all workers at one round end."""
EPOCHS_APART = 7
"""Workers log more epochs than this (`DealtLog`); if they are further apart, nobody knows which samples are trained."""
HANGS_S = 30.0
"""Seconds for which a store that has hung is left alone, so that the end of a run waits for it once."""
Vectors = dict[str, Tensor]
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Moment:
    """Holds what was kept of the model, and of each worker.

    aligned: everything is of one round. whole: no worker was within an exchange, as one may be where the run ends.
    agrees: all that was kept is of one round, though a worker may be absent. left: what workers that were gone by then
    had trained of shares.
    """

    facts: Facts
    workers: dict[int, Facts]
    aligned: bool
    whole: bool
    agrees: bool
    left: SharesLeft | None

    @property
    def has_all(self) -> bool:
        """Returns True if the model has all that the workers kept as trained: of one round, or each has handed over
        everything and ended."""
        return self.agrees or all("whole" in of for of in self.workers.values())


@dataclass(frozen=True, slots=True)
class _Captured:
    """Holds a moment with all its vectors: the model's by name, and each worker's own by rank."""

    moment: _Moment
    vectors: Vectors
    workers: dict[int, Vectors]


def not_saved(session: Session, what: str, error: Exception, *, quietly: bool = False) -> None:
    """Writes a line to the log and, unless `quietly`, to the trace: `what` was not saved, and the run goes on."""
    say_not_saved(
        session, f"{what} was not saved, the run goes on: {getattr(error, 'strerror', None) or error}", quietly=quietly
    )


def say_not_saved(session: Session, reason: str, *, quietly: bool = False) -> None:
    """Writes the line `reason` to the log and, unless `quietly`, to the trace."""
    print(reason, file=sys.stderr, flush=True)
    if not quietly:
        session.reports.note(
            Decided(at=session.node.now(), party="evaluator", rank=0, verdict=NOT_SAVED, reason=reason)
        )
        session.reports.flush()


class CheckpointWriter:
    """Writes the checkpoints of the model `module`, whose vector is `flat`."""

    def __init__(
        self,
        config: Config,
        session: Session,
        layout: Layout,
        flat: FlatModel,
        module: nn.Module,
        begun_at: int,
        secrets: StoreSecrets = NO_SECRETS,
        *,
        begun_with: Data = (),
        optimizer: str = "",
        fence: LockFence | None = None,
    ) -> None:
        """Prepares the writer; nothing is written yet.

        layout     of the model on servers; without holders where the workers have it
        begun_at   samples of an earlier incarnation of the run
        secrets    of --store
        begun_with which of those samples the servers know to be in the model
        optimizer  of a loop of one's own (`identity`)
        fence      keeps it from writing once the folder is another run's
        """
        self._config, self._session, self._node, self._optimizer = config, session, session.node, optimizer
        self._layout, self._servers = layout, len(set(layout.holders))
        self._request = CaptureRequest(self._node, CHECKPOINT, functools.partial(session.tell_servers, self._servers))
        self._flat, self._module, self._samples = flat, module, begun_at
        self._begun_with, self._known = begun_with, SampleRanges(begun_with).count
        scheme = config.scheme()
        self._by_round = by_round(scheme, config.cluster.servers)
        self._counts_workers = scheme.lock_step and not scheme.total_is_exact
        self._folder, self._secrets = FolderStore(Path(config.run.out) / CHECKPOINTS), secrets
        self._fence = fence
        self._last = time.monotonic()
        self._failing = False
        self._capture = BackgroundCapture[_Captured]()
        self.asked = False  # for one, whether it is due or not
        self._answers = False  # the one that is being captured was asked for
        self._asks_store_at = self._last  # not before
        self._number = 0  # of the last one, also where the disk has refused it
        self._offsets: dict[int, int] = {}  # of what each worker calls its clock from the version of the servers
        self._asking = False  # workers are asked for what they have
        self._asked: set[int] = set()  # those that have heard it in their present incarnation
        session.attach(PartyCallbacks(on_worker_joined=self._ask_newcomer))

    @property
    def wanted(self) -> bool:
        """Returns True if the run keeps checkpoints at all."""
        return self._config.checkpoint.every > 0

    @property
    def due(self) -> bool:
        """Returns True if it is time for the next checkpoint, and none is being captured."""
        if not self.wanted or self._capture.under_way:
            return False
        return self.asked or time.monotonic() - self._last >= self._config.checkpoint.every

    def begin(self, captured: Callable[[], None] = lambda: None) -> None:
        """Begins a checkpoint: a thread captures it, which takes up to two rounds, and calls `captured` at its end.

        `write` is to follow. A checkpoint that is asked for from now on is another one.
        """
        self._answers, self.asked = self.asked, False
        self._capture.begin(self._captured, captured)

    def save(self, accuracy: float) -> None:
        """Writes a checkpoint with this accuracy, after the one that is being captured, if any is; waits for both.

        Raises as `write` does.
        """
        self.finish(accuracy)
        if self.wanted:
            self.begin()
            self.finish(accuracy)

    def finish(self, accuracy: float) -> None:
        """Waits for the checkpoint that is being captured, if any is, and writes it. Raises as `write` does."""
        if self._capture.under_way:
            self._write_captured(accuracy)

    def write(self, accuracy: float) -> None:
        """Writes the checkpoint that has been captured, if one has. If that fails, a line in the log says so, and the
        run goes on.

        accuracy   of the newest evaluation
        Raises PeerLost if a server is lost for good.
        """
        if self._capture.complete:
            self._write_captured(accuracy)

    def _write_captured(self, accuracy: float) -> None:
        """Takes what was captured and writes it; one that was asked for and failed for now stays asked for."""
        answers, self._answers = self._answers, False
        try:
            found = self._capture.take()
        except Undone:  # a server was replaced meanwhile; what was to be kept is no more
            self.asked |= answers
            return
        except PeerLost:
            if self._servers:
                raise
            self.asked |= answers
            return  # the worker that was to show the model; another one will
        except (TimedOut, Mixed) as error:  # such as a worker whose loop does something else for long
            not_saved(self._session, "a checkpoint", error)
            self._last = time.monotonic()
            return
        moment = found.moment
        if "lead" in moment.facts and moment.facts["lead"] not in found.workers:
            self.asked |= answers
            return  # what goes for all is not whole
        before = self._number
        self._write(accuracy, moment, found.vectors, found.workers)
        self._last = time.monotonic()
        if answers and self._number > before and not self._failing:
            self._say_saved()

    def _captured(self) -> _Captured:
        """Returns what a checkpoint has. Called on the thread of the capture. Raises PeerLost, Undone, TimedOut or
        Mixed."""
        try:
            moment = self._moment()
            return _Captured(moment, self._model_vectors(moment), self._vectors_of_workers(moment))
        finally:
            self._forget()

    def _write(self, accuracy: float, moment: _Moment, vectors: Vectors, workers: dict[int, Vectors]) -> None:
        """Writes one checkpoint to the folder and to the store, and deletes old ones in both."""
        facts = moment.facts
        if WEIGHTS in vectors:
            self._flat.load(Flat.wrap(vectors.pop(WEIGHTS)))
        counted = self._samples_of_workers(moment) if self._counts_workers else _samples_in(facts)
        known = self._samples_settled(facts)
        drawn = None if known else drawn_by_all(moment.workers, self._workers, self._begun_with)
        if drawn is not None and drawn.count > self._known:
            facts["drawn"] = [list(piece) for piece in drawn]
            known = self._samples + drawn.count - self._known
            facts["settled"] = moment.has_all
        of_loop = known or self._keep_shares(moment) or self._samples_of_loop(moment, workers)
        samples = of_loop if self._optimizer and of_loop else counted
        samples = samples or max(self._samples, self._session.total_samples)
        model = {name: tensor.clone().contiguous() for name, tensor in plain_state(self._module).items()}
        written = {CHECKPOINT_ID: token_hex(8)}
        contents: dict[str, Iterable[bytes]] = {MODEL: [save(model, written)]}
        if "numbers" in facts:
            contents[OPTIMIZER] = [save(vectors, written)]
        # A worker whose state is not finite is left out, as if it had been lost; a model that is not finite is not
        # written.
        workers = {rank: of for rank, of in workers.items() if _finite(of.values())}  # one machine may be broken
        for rank, of in workers.items():
            contents |= worker_files(rank, moment.workers[rank], of, written)
        if not _finite([*model.values(), *vectors.values()]):
            not_saved(self._session, "a checkpoint", Diverged("it has NaN or infinity, and the one before it stays"))
            return
        # As late as possible: capturing took seconds, in which another run may have taken the folder over.
        if self._fence is not None:
            self._fence.check()
        number = self._next_number()
        facts |= {
            "samples": samples,
            "accuracy": accuracy,
            "identity": identity(self._config, self._optimizer),
        } | written
        facts["aligned"] = moment.aligned and len(workers) == self._workers
        facts["whole"] = moment.whole
        facts["settled"] = facts.get("settled", False) and samples == known
        failing = False
        for shelf_of in (lambda: self._folder, self._store):
            try:
                shelf: CheckpointStore | None = shelf_of()
                if shelf is not None:
                    shelf.save(number, contents, finite=True, **facts)
                    keep = self._config.checkpoint
                    # Old checkpoints go only after the new one is complete.
                    shelf.rotate(keep.keep_last, keep_best=keep.keep_best, healthy=number)
            except (OSError, ConfigError) as error:
                not_saved(self._session, f"checkpoint {number}", error, quietly=self._failing)
                failing = True
                if isinstance(error, StoreTimeoutError):
                    self._asks_store_at = time.monotonic() + HANGS_S
        self._failing = failing

    def _say_saved(self) -> None:
        """Records that the checkpoint that somebody has asked for is written."""
        reason = f"checkpoint {self._number}"
        self._session.reports.note(
            Decided(at=self._node.now(), party="evaluator", rank=0, verdict="saved", reason=reason)
        )

    def _samples_of_loop(self, moment: _Moment, workers: dict[int, Vectors]) -> int:
        """Returns the samples that the workers of a loop of one's own have handed over; 0 where not all tell.

        A later run goes on from there, so that what is trained in all is what the loop asks for.
        """
        places = [moment.workers[rank]["entry"][1] for rank in workers]
        return sum(places) if len(places) == self._workers else 0

    def _keep_shares(self, moment: _Moment) -> int:
        """Adds what is known of the shares of all workers to the facts; returns the samples of them that were trained,
        or 0 where that is not known."""
        facts, entries, left = moment.facts, {rank: of["entry"] for rank, of in moment.workers.items()}, moment.left
        shares = shares_of(entries, self._workers, left)
        if shares:
            facts["shares"] = [[place, [list(span) for span in untrained]] for place, untrained in shares]
        known = bool(shares) and moment.has_all and left is self._session.shares_left
        facts["moved"] = not known and (left is not None or shares_moved(entries.values(), self._workers))
        return trained_before(shares).count

    def _samples_settled(self, facts: Facts) -> int:
        """Returns the samples that are in the model, by the places that its servers know; 0 where they learn none."""
        known = SampleRanges((facts.get("tables") or {}).get("done", ())).count
        return self._samples + known - self._known if known > self._known else 0

    def _samples_of_workers(self, moment: _Moment) -> int:
        """Returns the samples that all workers have handed over, also those that have left; 0 where not all tell."""
        samples = [found[3] if len(found := of["entry"]) > 3 else -1 for of in moment.workers.values()]
        return sum(samples) if len(samples) == self._workers and min(samples) >= 0 else 0

    def _store(self) -> RedisStore | None:
        if self._config.checkpoint.store and time.monotonic() < self._asks_store_at:
            raise ConfigError(f"--store has hung, and is not asked again within {HANGS_S:g} s")
        return store_of(self._config, self._secrets)

    def _next_number(self) -> int:
        """Returns the number of the next checkpoint, never the same one twice: one of the two places may have refused
        it."""
        with contextlib.suppress(OSError):  # saving there will find it, and say so
            self._number = max([self._number, *self._folder.numbers()])
        self._number += 1
        return self._number

    # ---- one moment --------------------------------------------------------------------------------------
    def _moment(self) -> _Moment:
        """Returns one moment of the run, of one round if the scheme has rounds and the workers can be caught. Raises
        Undone."""
        ahead = AHEAD
        while True:
            moment = self._attempt(ahead)
            lock_step = moment.facts.get("lock_step", False)
            all_here = len(moment.workers) == self._workers and not self._session.departed
            if moment.aligned or not lock_step or ahead >= AHEAD_MAX or not all_here:
                return moment
            ahead *= 4
            self._forget()

    def _attempt(self, ahead: int) -> _Moment:
        left = self._session.shares_left
        facts = self._of_servers(ahead) if self._servers else {}
        if not self._servers:
            self._ask_workers(self._next_round(ahead) if self._by_round else None)
        workers = self._of_workers()
        if self._by_round and workers:
            # The lead is the first worker that is up to date, or one round behind at most. One that has left (`whole`
            # is in its last state alone) still shows the state it left with, which lacks what others trained since.
            newest = max(of["clock"] for of in workers.values())
            lead = min(rank for rank, of in workers.items() if of["clock"] >= newest - ("whole" not in of))
            facts = {name: workers[lead][name] for name in ("numbers", "lock_step")}
            facts["samples_seen"] = workers[lead].get("common", {}).get("samples_seen", 0)
            facts |= {"vectors": workers[lead]["model"], "version": workers[lead]["clock"], "lead": lead}
        clocks = self._clocks(facts, workers) if facts.get("lock_step") else {}
        self._offsets |= {rank: clock - facts["version"] for rank, clock in clocks.items()}
        found = [_choose(of, clocks.get(rank)) for rank, of in workers.items()]
        if facts.get("tables"):  # not every kind of server has any
            facts["tables"] = with_forgotten(facts["tables"], {rank: of["clock"] for rank, of in workers.items()})
        whole = all(of.get("whole", True) for of in workers.values())
        agrees = whole and all(found)
        aligned = agrees and len(found) == self._workers
        return _Moment(facts, workers, aligned=aligned, whole=whole, agrees=agrees, left=left)

    def _clocks(self, facts: Facts, workers: dict[int, Facts]) -> dict[int, int]:
        """Returns what each worker calls its clock at the version that was kept.

        Clocks differ from versions for workers that joined late. Servers forget workers that left, so the last known
        difference is remembered here.
        """
        version: int = facts["version"]
        clocks = {rank: version + self._offsets.get(rank, 0) for rank in workers}
        if facts.get("tables"):
            shift: dict[int, int] = dict(facts["tables"]["shift"])
            clocks |= {rank: clock - (shift.get(rank) or 0) for rank, clock in facts["tables"]["clocks"]}
        return clocks

    def _of_servers(self, ahead: int) -> Facts:
        """Captures the servers and asks the workers for the same round; returns the facts of all slices."""
        everyone = [party.server(shard) for shard in range(self._servers)]
        lock_step = all(self._node.version_of(server, LOCK_STEP) for server in everyone)
        version = self._request.begin(everyone, ahead)
        self._ask_workers(version if lock_step else None)
        shown = self._states()
        each = [json.loads(of) for of in shown]
        self._request.check(each)
        facts: Facts = json.loads(min(shown))  # not one of `each`: it is changed, and compared with them
        facts["numbers_of"], facts["roles"] = [of["numbers"] for of in each], each
        facts["vectors"] = sorted(common_names(of["vectors"] for of in each))
        # Leased samples count as done that are in the slice which reports them, the first one of the first server.
        tables = [of["tables"] for of in each]
        facts["tables"] = kept_tables(tables, self._layout.of(FIRST.index)[0])
        facts["settled"] = all(of.get("done") == tables[0].get("done") for of in tables)
        del facts[CAPTURE]
        del facts["lr"]  # a later run goes on by its own
        return facts

    def _states(self) -> list[str]:
        """Returns the facts of each slice as JSON, in the order of the slices."""
        of_server = [range(len(self._layout.of(shard))) for shard in range(self._servers)]
        states = [
            self._node.read_several(party.server(shard), [(kept(CHECKPOINT, STATE), at) for at in slices])
            for shard, slices in enumerate(of_server)
        ]
        return [states[shard][at].facts for shard, at in self._layout.homes()]

    def _ask_workers(self, version: int | None) -> None:
        """Asks the workers to keep their state of that version, or as soon as they can where there is no common
        version."""
        self._asking, self._asked = True, set()
        for rank in self._here:
            self._ask_worker(rank, AT_ONCE if version is None else max(AT_ONCE, version + self._offsets.get(rank, 0)))

    def _ask_newcomer(self, rank: int) -> None:
        """Asks a worker that takes part from now on: the question was lost with its earlier incarnation."""
        self._asked.discard(rank)
        if self._asking:
            self._ask_worker(rank, AT_ONCE)

    def _ask_worker(self, rank: int, at: int) -> None:
        """Asks one worker, and notes whether it could be told: the answer of nobody else is awaited."""
        if self._session.tell_worker(rank, control.Capture(version=at)):
            self._asked.add(rank)

    def _forget(self) -> None:
        """Lets everybody free what was kept."""
        self._asking = False
        self._request.forget()
        for rank in self._here:
            self._session.tell_worker(rank, control.Capture(version=FORGET))

    @property
    def _workers(self) -> int:
        return self._config.cluster.workers

    @property
    def _here(self) -> list[int]:
        return [rank for rank in range(self._workers) if rank not in self._session.lost_ranks]

    def _next_round(self, ahead: int) -> int:
        """Returns a round that no worker has reached yet, where the workers hold the model.

        A worker that is lost meanwhile is left out.
        """
        met = []
        for rank in self._here:
            try:
                met.append(self._node.version_of(party.worker(rank), VERSION))
            except PeerLost:
                continue
        return int(max(met, default=0)) + ahead

    def _of_workers(self) -> dict[int, Facts]:
        """Returns the facts of each worker that was asked; nobody else would ever answer."""
        found = {}
        for rank in [rank for rank in self._here if rank in self._asked]:
            try:
                found[rank] = json.loads(self._node.read_published(rank, kept(CHECKPOINT, STATE)).facts)
            except Undone:
                raise
            except PeerLost:  # the others go on without it
                continue
        return found

    def _model_vectors(self, moment: _Moment) -> Vectors:
        """Returns vectors as long as the model, by name; {} where each worker has a model of its own."""
        facts = moment.facts
        to = facts.get("lead", SERVERS)
        names = facts.pop("vectors", ())
        if to is SERVERS and names:
            has = [set(of["vectors"]) for of in facts["roles"]]
            vectors = {name: self._of_slices(name, [name in own for own in has]) for name in names}
        else:
            vectors = {name: self._numbers(to, name) for name in names}
        if self._servers:
            each = facts.pop("numbers_of")
            on_one_scale(vectors, facts["numbers"], each, self._layout.slices)
            facts |= role_of_model(vectors, facts.pop("roles"), self._layout.slices)
            facts["numbers"] = of_model(facts["numbers"], each, self._layout, self._flat.tensors)
        return vectors

    def _vectors_of_workers(self, moment: _Moment) -> dict[int, Vectors]:
        """Returns each worker's own vectors; a worker that is lost meanwhile is left out."""
        found = {}
        for rank, facts in moment.workers.items():
            own = [name for name in facts["vectors"] if name not in facts.get("model", ())]
            try:
                found[rank] = {name: self._numbers(rank, name) for name in own}
            except Undone:
                raise
            except PeerLost:  # half of what it remembers is worth nothing
                continue
        return found

    def _of_slices(self, name: str, has: Sequence[bool]) -> Tensor:
        """Returns a vector of all slices; zeros where a server has none, since its rule has made no step yet."""
        if all(has):
            return self._numbers(SERVERS, name)
        whole = torch.zeros(self._layout.length)
        for shard in range(self._servers):
            own = self._layout.of(shard)
            if own and has[own[0]]:
                shown = self._node.read_several(
                    party.server(shard), [(kept(CHECKPOINT, name), at) for at in range(len(own))]
                )
                for number, of in zip(own, shown, strict=True):
                    v: Any = of.v
                    v.copy_into(whole[self._layout.slices[number]])
        return whole

    def _numbers(self, to: Any, name: str) -> Tensor:
        v: Any = self._node.read_published(to, kept(CHECKPOINT, name)).v
        numbers = torch.empty(len(v))
        v.copy_into(numbers)
        return numbers


def _samples_in(facts: Facts) -> int:
    """Returns the samples that are in the weights, as who holds them counts; 0 where nobody does.

    The rule counts those of its updates; where workers train locally, only roles count.
    """
    return round(facts.get("numbers", {}).get("samples_seen", 0)) or int(facts.get("samples_seen", 0))


def _finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def _choose(facts: Facts, clock: int | None) -> bool:
    """Picks, of a worker's positions, the one at `clock`, or the last one.

    Returns True if it was that of `clock`, and so is all that the worker remembers.
    """
    entries, kept_at = {int(at): entry for at, entry in facts.pop("entries").items()}, facts["clock"]
    remembers = set(facts["vectors"]) - set(facts.get("model", ())) - {BUFFERS}
    chosen = clock if clock in entries else max(entries)
    if remembers and clock != kept_at:
        clock = None
    facts |= {"clock": chosen, "entry": entries[chosen]}
    return clock == chosen


def shares_of(entries: Mapping[int, Sequence[Any]], count: int, left: SharesLeft | None) -> list[KeptShare]:
    """Returns what to keep of the shares of `count` workers, by their positions, which are lists, and by what those had
    trained that have `left`; [] where that is not known of all."""
    each = {rank: entry[5] for rank, entry in entries.items() if len(entry) > 5 and of_shares(entry[5])}
    sizes, free = {rank: size for rank, (size, _) in each.items()}, dict(left.free) if left else {}
    sizes = free | sizes
    if not each or sizes.keys() != set(range(count)):
        return []
    own = {rank: int(entries[rank][1]) for rank in each if rank not in free}
    pieces = [piece for _, pieces in each.values() for piece in pieces]
    if left is None:
        trained = SampleRanges((rank, 0, place) for rank, place in own.items() if place)
    else:
        trained = SampleRanges(left.trained)
        floor = max((epoch for epoch, _, _, _ in pieces), default=0) - EPOCHS_APART
        for rank, size in free.items():
            if floor * size > 0:
                trained.add((rank, 0, floor * size))
        for _, start, stop, rank in pieces:
            trained.add((rank, start, stop))
    return shares_kept(sizes, own, trained)


def shares_moved(entries: Collection[Sequence[Any]], count: int) -> bool:
    """Returns True if workers with a share each have trained of others' shares, or one of `count` is absent. `entries`:
    positions, as lists."""
    places = [(int(entry[1]), int(entry[3]) if len(entry) > 3 else -1) for entry in entries]
    absent = len(places) < count and any(position > 0 for position, _ in places)
    return absent or any(0 < position < samples for position, samples in places)


def drawn_by_all(workers: Mapping[int, Facts], count: int, before: Data) -> SampleRanges | None:
    """Returns which samples of the common queue `count` workers have trained, at the positions that were chosen, with
    those from `before`; None where not all know it, or one sends what cannot be.

    An epoch is trained to its end once a worker is EPOCHS_APART beyond it and nobody behind that: each trains in order.
    """
    told = [found[4] if len(found := of["entry"]) > 4 else None for of in workers.values()]
    of_each = [one for one in told if one is not None and dealt(one)]
    if not of_each or len(of_each) < count:
        return None
    lengths, last = {length for length, _ in of_each}, [pieces[-1][0] if pieces else 0 for _, pieces in of_each]
    floor = max(epoch for _, pieces in of_each for epoch, _, _ in [*pieces, (0, 0, 0)]) - EPOCHS_APART
    if len(lengths) > 1 or min(last) < floor:
        return None
    drawn, (length,) = SampleRanges(before), lengths
    for epoch in range(floor):
        drawn.add((epoch, 0, length))
    for _, pieces in of_each:
        for piece in pieces:
            drawn.add(tuple(piece))
    return drawn
