"""Writes the checkpoints of a run, in the evaluator's process: nobody stops for them.

Where servers hold the model they are asked for one version, two ahead of the one they are at; each keeps it when it
comes by, and so does each worker what it remembers. A worker that was past that already when it heard of it has all try
again further ahead. Where the workers hold one model, one of them shows its own; where each has another, the weights
are those that the evaluator has looked at last.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import time
from collections.abc import Iterable, Sequence
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
from paceline.core.effects import SERVERS
from paceline.core.errors import ConfigError, Diverged, PeerLost, TimedOut, Undone
from paceline.core.sharding import Layout
from paceline.core.trace import NOT_SAVED, Decided
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat
from paceline.live import party
from paceline.live.control.handlers import PartyCallbacks
from paceline.live.control.session import Session
from paceline.live.node.published_state import STATE
from paceline.live.protocol import control_messages as control
from paceline.live.state.capture_request import CaptureRequest
from paceline.live.state.slice_state import (
    AHEAD,
    CAPTURE,
    CHECKPOINT,
    FORGET,
    LOCK_STEP,
    VERSION,
    Mixed,
    kept,
)
from paceline.runtime.checkpointing.checkpoint_validation import CHECKPOINT_ID, OPTIMIZER
from paceline.runtime.checkpointing.resume import identity, store_of, worker_files
from paceline.runtime.checkpointing.slice_capture import WEIGHTS
from paceline.runtime.checkpointing.slice_numbers import of_model
from paceline.runtime.checkpointing.worker_position import AT_ONCE
from paceline.runtime.checkpointing.worker_state import by_round
from paceline.runtime.run_folder.lock_file import LockFence

AHEAD_MAX = 128
HANGS_S = 30.0
"""For how long a store that has hung is left alone, so that the end of a run waits for it once."""
Vectors = dict[str, Tensor]
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Moment:
    """This holds what was kept of the model, and of each worker. `aligned`: all of one round."""

    facts: Facts
    workers: dict[int, Facts]
    aligned: bool


def not_saved(session: Session, what: str, error: Exception, *, quietly: bool = False) -> None:
    """A line for the log and, unless `quietly`, one for whoever watches the run, which goes on."""
    say_not_saved(
        session, f"{what} was not saved, the run goes on: {getattr(error, 'strerror', None) or error}", quietly=quietly
    )


def say_not_saved(session: Session, reason: str, *, quietly: bool = False) -> None:
    """The same, of something that is not where it should be."""
    print(reason, file=sys.stderr, flush=True)
    if not quietly:
        session.reports.note(
            Decided(at=session.node.now(), party="evaluator", rank=0, verdict=NOT_SAVED, reason=reason)
        )
        session.reports.flush()


class CheckpointWriter:
    """Of the model `module`, which is `flat`."""

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
        optimizer: str = "",
        fence: LockFence | None = None,
    ) -> None:
        """`layout`: of the model on servers; without holders where the workers have it.
        `begun_at`: samples of an earlier incarnation of the run.

        `secrets` of --store. `optimizer`: of a loop of one's own (`identity`).
        `fence` keeps it from writing once the folder is another run's.
        """
        self._config, self._session, self._node, self._optimizer = config, session, session.node, optimizer
        self._layout, self._servers = layout, len(set(layout.holders))
        self._request = CaptureRequest(self._node, CHECKPOINT, functools.partial(session.tell_servers, self._servers))
        self._flat, self._module, self._samples = flat, module, begun_at
        self._by_round = by_round(config.scheme(), config.cluster.servers)
        self._folder, self._secrets = FolderStore(Path(config.run.out) / CHECKPOINTS), secrets
        self._fence = fence
        self._last = time.monotonic()
        self._failing = False
        self._asks_store_at = self._last  # not before
        self._number = 0  # of the last one, also where the disk has refused it
        self._offsets: dict[int, int] = {}  # of what each worker calls its clock from the version of the servers
        self._asking = False  # workers are asked for what they have
        self._asked: set[int] = set()  # those that have heard it in their present incarnation
        session.attach(PartyCallbacks(on_worker_joined=self._ask_newcomer))

    @property
    def wanted(self) -> bool:
        return self._config.checkpoint.every > 0

    @property
    def due(self) -> bool:
        return self.wanted and time.monotonic() - self._last >= self._config.checkpoint.every

    def save(self, accuracy: float) -> None:
        """One more; where the disk does not take it, a line in the log says so and the run goes on."""
        if not self.wanted:
            return
        try:
            moment = self._moment()
            vectors = self._model_vectors(moment)
            workers = self._vectors_of_workers(moment)
        except Undone:  # a server was replaced meanwhile; what was to be kept is no more
            return
        except PeerLost:
            if self._servers:
                raise
            return  # the worker that was to show the model; another one will
        except (TimedOut, Mixed) as error:  # such as a worker whose loop does something else for long
            not_saved(self._session, "a checkpoint", error)
            self._last = time.monotonic()
            return
        finally:
            self._forget()
        if "lead" in moment.facts and moment.facts["lead"] not in workers:
            return  # what goes for all is not whole
        self._write(accuracy, moment, vectors, workers)
        self._last = time.monotonic()

    def _write(self, accuracy: float, moment: _Moment, vectors: Vectors, workers: dict[int, Vectors]) -> None:
        facts = moment.facts
        if WEIGHTS in vectors:
            self._flat.load(Flat.wrap(vectors.pop(WEIGHTS)))
        samples = round(facts.get("numbers", {}).get("samples_seen", 0))
        samples = self._samples_of_loop(moment, workers) or samples or max(self._samples, self._session.total_samples)
        model = {name: tensor.clone().contiguous() for name, tensor in self._module.state_dict().items()}
        written = {CHECKPOINT_ID: token_hex(8)}
        contents: dict[str, Iterable[bytes]] = {MODEL: [save(model, written)]}
        if "numbers" in facts:
            contents[OPTIMIZER] = [save(vectors, written)]
        workers = {rank: of for rank, of in workers.items() if _finite(of.values())}  # one machine may be broken
        for rank, of in workers.items():
            contents |= worker_files(rank, moment.workers[rank], of, written)
        if not _finite([*model.values(), *vectors.values()]):
            not_saved(self._session, "a checkpoint", Diverged("it has NaN or infinity, and the one before it stays"))
            return
        if self._fence is not None:
            self._fence.check()
        number = self._next_number()
        facts |= {
            "samples": samples,
            "accuracy": accuracy,
            "identity": identity(self._config, self._optimizer),
        } | written
        facts["aligned"] = moment.aligned and len(workers) == self._workers
        failing = False
        for shelf_of in (lambda: self._folder, self._store):
            try:
                shelf: CheckpointStore | None = shelf_of()
                if shelf is not None:
                    shelf.save(number, contents, finite=True, **facts)
                    keep = self._config.checkpoint
                    shelf.rotate(keep.keep_last, keep_best=keep.keep_best, healthy=number)
            except (OSError, ConfigError) as error:
                not_saved(self._session, f"checkpoint {number}", error, quietly=self._failing)
                failing = True
                if isinstance(error, StoreTimeoutError):
                    self._asks_store_at = time.monotonic() + HANGS_S
        self._failing = failing

    def _samples_of_loop(self, moment: _Moment, workers: dict[int, Vectors]) -> int:
        """Of a loop of one's own: what the workers have handed over of its data set; 0 where not all say.

        The others' queue goes on there, so that what is trained in all is what the loop asks for.
        """
        places = [moment.workers[rank]["entry"][1] for rank in workers]
        return sum(places) if self._optimizer and len(places) == self._workers else 0

    def _store(self) -> RedisStore | None:
        """Raises ConfigError."""
        if self._config.checkpoint.store and time.monotonic() < self._asks_store_at:
            raise ConfigError(f"--store has hung, and is not asked again within {HANGS_S:g} s")
        return store_of(self._config, self._secrets)

    def _next_number(self) -> int:
        """Never the same one twice: where one shelf refuses it, the other has it."""
        with contextlib.suppress(OSError):  # saving there will find it, and say so
            self._number = max([self._number, *self._folder.numbers()])
        self._number += 1
        return self._number

    # ---- one moment --------------------------------------------------------------------------------------
    def _moment(self) -> _Moment:
        """Raises Undone."""
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
        facts = self._of_servers(ahead) if self._servers else {}
        if not self._servers:
            self._ask_workers(self._next_round(ahead) if self._by_round else None)
        workers = self._of_workers()
        if self._by_round and workers:
            newest = max(of["clock"] for of in workers.values())  # one that has left shows for ever what it had
            lead = min(rank for rank, of in workers.items() if of["clock"] >= newest - 1)
            facts = {name: workers[lead][name] for name in ("numbers", "lock_step")}
            facts |= {"vectors": workers[lead]["model"], "version": workers[lead]["clock"], "lead": lead}
        clocks = self._clocks(facts, workers) if facts.get("lock_step") else {}
        self._offsets |= {rank: clock - facts["version"] for rank, clock in clocks.items()}
        found = [_choose(of, clocks.get(rank)) for rank, of in workers.items()]
        if facts.get("tables"):  # not every kind of server has any
            _complete(facts["tables"], workers)
        return _Moment(facts, workers, aligned=all(found) and len(found) == self._workers)

    def _clocks(self, facts: Facts, workers: dict[int, Facts]) -> dict[int, int]:
        """What each worker calls its clock at the version that was kept; servers forget those who have left."""
        version: int = facts["version"]
        clocks = {rank: version + self._offsets.get(rank, 0) for rank in workers}
        if facts.get("tables"):
            shift: dict[int, int] = dict(facts["tables"]["shift"])
            clocks |= {rank: clock - (shift.get(rank) or 0) for rank, clock in facts["tables"]["clocks"]}
        return clocks

    def _of_servers(self, ahead: int) -> Facts:
        everyone = [party.server(shard) for shard in range(self._servers)]
        lock_step = all(self._node.version_of(server, LOCK_STEP) for server in everyone)
        version = self._request.begin(everyone, ahead)
        self._ask_workers(version if lock_step else None)
        shown = self._states()
        each = [json.loads(of) for of in shown]
        self._request.check(each)
        facts: Facts = json.loads(min(shown))  # not one of `each`: it is changed, and compared with them
        facts["numbers_of"] = [of["numbers"] for of in each]
        del facts[CAPTURE]
        del facts["lr"]  # a later run goes on by its own
        return facts

    def _states(self) -> list[str]:
        """What JSON can say of each slice, in their order."""
        of_server = [range(len(self._layout.of(shard))) for shard in range(self._servers)]
        states = [
            self._node.read_several(party.server(shard), [(kept(CHECKPOINT, STATE), at) for at in slices])
            for shard, slices in enumerate(of_server)
        ]
        return [states[shard][at].facts for shard, at in self._layout.homes()]

    def _ask_workers(self, version: int | None) -> None:
        """For what they have at that version, or as soon as they can."""
        self._asking, self._asked = True, set()
        for rank in self._here:
            self._ask_worker(rank, AT_ONCE if version is None else max(AT_ONCE, version + self._offsets.get(rank, 0)))

    def _ask_newcomer(self, rank: int) -> None:
        """Asks a worker that takes part from now on; the one before it has taken the question with it."""
        self._asked.discard(rank)
        if self._asking:
            self._ask_worker(rank, AT_ONCE)

    def _ask_worker(self, rank: int, at: int) -> None:
        if self._session.tell_worker(rank, control.Capture(version=at)):
            self._asked.add(rank)

    def _forget(self) -> None:
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
        """Raises PeerLost where nobody is left."""
        met = []
        for rank in self._here:
            try:
                met.append(self._node.version_of(party.worker(rank), VERSION))
            except PeerLost:
                continue
        return int(max(met, default=0)) + ahead

    def _of_workers(self) -> dict[int, Facts]:
        """Of those that have been asked: nobody else would ever answer."""
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
        """As long as the model; nothing where each worker has a model of its own."""
        facts = moment.facts
        to = facts.get("lead", SERVERS)
        vectors = {name: self._numbers(to, name) for name in facts.pop("vectors", ())}
        if self._servers:
            each = facts.pop("numbers_of")
            _on_one_scale(vectors, facts["numbers"], each, self._layout.slices)
            facts["numbers"] = of_model(facts["numbers"], each, self._layout, self._flat.tensors)
        return vectors

    def _vectors_of_workers(self, moment: _Moment) -> dict[int, Vectors]:
        """Those that are not the model's, of each worker; one that is lost meanwhile is not in it."""
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

    def _numbers(self, to: Any, name: str) -> Tensor:
        v: Any = self._node.read_published(to, kept(CHECKPOINT, name)).v
        numbers = torch.empty(len(v))
        v.copy_into(numbers)
        return numbers


def _finite(tensors: Iterable[Tensor]) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def _on_one_scale(vectors: Vectors, numbers: Facts, numbers_of: Sequence[Facts], parts: Sequence[slice]) -> None:
    """A slice keeps momentum and its scale apart, which depends on whose push came first: the parts have to agree.

    Where they do, both stay as they are, lest anything be rounded.
    """
    for name in vectors:
        head, momentum, rest = name.rpartition("momentum")  # with the head of a rule within a rule
        scales = [of.get(f"{head}scale", 1.0) for of in numbers_of]
        if momentum and not rest and len(set(scales)) > 1:
            for part, scale in zip(parts, scales, strict=True):
                vectors[name][part] *= scale
            numbers[f"{head}scale"] = 1.0


def _choose(facts: Facts, clock: int | None) -> bool:
    """Of the places where a worker stood, keep that of `clock` or the last. Was it that one?"""
    entries = {int(at): entry for at, entry in facts.pop("entries").items()}
    chosen = clock if clock in entries else max(entries)
    facts |= {"clock": chosen, "entry": entries[chosen]}
    return clock == chosen


def _complete(tables: Facts, workers: dict[int, Facts]) -> None:
    """A server has forgotten those who have left, and a later run begins with all."""
    known = {rank for rank, _ in tables["clocks"]}
    tables["clocks"] += [[rank, of["clock"]] for rank, of in workers.items() if rank not in known]
