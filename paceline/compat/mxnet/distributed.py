"""Stores of type `dist_*` have their values on servers, which follow one scheme key by key.

    init      Declare to each part's server: which slice is the key's; then BeginStore (rank 0) or Await (the others)
    push      KeyPush to each part; answered later, at most PUSHES_OPEN_MAX of a key are open
    pull      KeyPull to each part; all open pushes of the key are answered first
    pushpull  KeyPush with pull=True: one message and one answer
    close     all pushes are answered, then the session leaves the run

A large key is divided into parts, one a server (`runtime/kvstore/placement.py`).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.codec.base import read
from paceline.codec.pipeline.stage import Stage
from paceline.compat.mxnet.api import KVStore
from paceline.compat.mxnet.arguments import AnyVector
from paceline.compat.mxnet.requests import Asked, ServerRequests
from paceline.compat.mxnet.state_files import KeyStates
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.errors import ConfigError, PacelineError, ProtocolError
from paceline.engine.vectors.flat import Flat, FlatMemory
from paceline.live.control.session import Session
from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.placement import Key, ValuePart, parts_of, row_width, text_of
from paceline.runtime.kvstore.rows import numbers_of, whole
from paceline.runtime.kvstore.store_spec import StoreSpec
from paceline.runtime.kvstore.table import DIRECTORY, GATE
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec

PUSHES_OPEN_MAX = 8
"""A worker may have so many pushes of one key unanswered; one more waits, so that no server queues them without end."""


@dataclass(frozen=True, slots=True)
class _Home:
    """Says where a key is: its parts, the number of its slice on the server of each, and the width of a row, or 0."""

    parts: tuple[ValuePart, ...]
    numbers: tuple[int, ...]
    width: int

    def __iter__(self) -> Iterator[tuple[ValuePart, int]]:
        return iter(zip(self.parts, self.numbers, strict=True))


class DistributedStore(KVStore):
    """Asks the servers by messages, and keeps no value itself."""

    def __init__(self, spec: ProcessSpec, session: Session, store: StoreSpec, *, timeout_s: float) -> None:
        """Joins the run; returns when all workers have. Raises ConfigError where worker 0 opens another store."""
        super().__init__(store.type)
        self.rank = spec.who.index
        self._session, self._store, self._servers = session, store, spec.servers
        self._asking = ServerRequests(session, timeout_s)
        self._homes: dict[Key, _Home] = {}
        self._open: defaultdict[Key, deque[list[Asked]]] = defaultdict(deque)  # pushes, oldest first
        self._optimizers = self._pushes = 0
        self._join(store)

    @property
    def num_dead_nodes(self) -> int:
        return len(self._session.lost_ranks)

    def _join(self, store: StoreSpec) -> None:
        """Goes through the phases of a run: Ready, Plan, Prepared, Go. The store's type travels where the optimizer's
        recipe does.
        """
        session, recipe = self._session, Recipe(scheme=store.scheme, store=store).to_json()
        session.connect([party.server(number) for number in range(self._servers)])
        ready = control.Ready(
            length=0, fingerprint="key-value store", seconds_per_step=0.0, optimizer=recipe, ways=session.ways()
        )
        session.tell(ready)
        plan = session.expect(control.Plan)
        if plan.optimizer != recipe:
            raise ConfigError(
                f"worker {self.rank} opens {store}, worker 0 {Recipe.from_json(plan.optimizer).store}: "
                "give all workers the same"
            )
        self.num_workers = plan.workers
        session.took_up()
        session.expect(control.Go)
        session.reports.begin(self._progress)

    def _progress(self) -> control.Progress:
        up, down = self._session.traffic()
        return control.Progress(
            steps=0,
            samples=0,
            exchanges=self._pushes,
            seconds_computing=0.0,
            seconds_waiting=0.0,
            seconds_communicating=0.0,
            bytes_up=up,
            bytes_down=down,
        )

    # ---- values ------------------------------------------------------------------------------------------
    def _begin(self, firsts: Mapping[Key, Tensor]) -> None:
        numbered = {key: self._declare(key, first) for key, first in firsts.items()}
        waiting = []
        for key, (parts, asked) in numbered.items():
            numbers = tuple(answer.number for answer in self._asking.answers(asked))
            self._homes[key] = _Home(parts, numbers, row_width(firsts[key].shape, parts))
            first = Flat.copy_of(firsts[key])
            for part, number in self._homes[key]:
                message = m.BeginStore(v=first[part.at]) if self.rank == 0 else m.Await()
                waiting.append(self._asking.ask(part.server, number, message, f"init of key {key!r}"))
        self._asking.answers(waiting)

    def _declare(self, key: Key, first: Tensor) -> tuple[tuple[ValuePart, ...], list[Asked]]:
        """Asks the server of each part which slice is the key's; the first worker that asks makes it."""
        shape, parts = tuple(first.shape), parts_of(key, first.shape, self._servers, self._store.bound)
        asked = []
        for part in parts:
            declared = m.Declare(key=text_of(key), shape=shape, dtype="float32", length=part.length)
            asked.append(self._asking.ask(part.server, DIRECTORY, declared, f"init of key {key!r}"))
        return parts, asked

    def _push(self, vectors: dict[Key, list[AnyVector]]) -> None:
        for key, v in self._summed(vectors).items():
            line = self._open[key]
            # Answers that are there are taken at once; a rejected push raises here.
            while line and (len(line) >= PUSHES_OPEN_MAX or all(one.pending.ready for one in line[0])):
                self._asking.answers(line.popleft())
            line.append(self._send(key, v, pull=False))

    def _send(self, key: Key, v: AnyVector, *, pull: bool) -> list[Asked]:
        self._pushes += 1
        what = f"the answer to {'pushpull' if pull else 'push'} of key {key!r}"
        return [
            self._asking.ask(part.server, number, m.KeyPush(v=v[part.at], pull=pull), what)
            for part, number in self._homes[key]
        ]

    def _pull(self, keys: Sequence[Key]) -> list[Tensor]:
        asked = {key: self._ask_all(key, m.KeyPull(), "pull") for key in keys}
        return [self._value(key, asked[key]) for key in keys]

    def _pushpull(self, vectors: dict[Key, list[AnyVector]]) -> list[Tensor]:
        asked = {key: self._send(key, v, pull=True) for key, v in self._summed(vectors).items()}
        return [self._value(key, asked[key]) for key in vectors]

    def _ask_all(self, key: Key, message: object, what: str) -> list[Asked]:
        """Sends the same question to every part of the key."""
        what = f"the answer to {what} of key {key!r}"
        return [self._asking.ask(part.server, number, message, what) for part, number in self._homes[key]]

    def _value(self, key: Key, asked: list[Asked]) -> Tensor:
        """Returns the value.

        Answers to earlier pushes of the key are taken first, so a push that was refused raises here.
        """
        self._settle(key)
        return _joined(self._homes[key].parts, [answer.v for answer in self._asking.answers(asked)])

    def _settle(self, key: Key) -> None:
        """Waits until all pushes of the key are answered."""
        line = self._open[key]
        while line:
            self._asking.answers(line.popleft())

    def _pull_rows(self, key: Key, rows: Tensor) -> Tensor:
        home, width = self._homes[key], self._shapes[key][1]
        if not home.width:  # there are fewer rows than servers, so the cuts go through rows
            return self._pull([key])[0].view(-1, width)[rows]
        asked = []
        for part, number in home:
            first, last = part.at.start // width, part.at.stop // width
            here = rows[(rows >= first) & (rows < last)] - first
            if len(here):
                message = m.PullRows(rows=numbers_of(here), width=width)
                what = f"the answer to row_sparse_pull of key {key!r}"
                asked.append(self._asking.ask(part.server, number, message, what))
        self._settle(key)
        values = [whole(answer.v).value() for answer in self._asking.answers(asked)]
        return torch.cat(values) if values else torch.empty(0)

    # ---- what holds for all keys -------------------------------------------------------------------------
    def _ask_servers(self, message: object, what: str) -> None:
        asked = [self._asking.ask(server, DIRECTORY, message, what) for server in range(self._servers)]
        self._asking.answers(asked)

    def _use(self, updater: Updater) -> None:
        self._optimizers += 1
        self._ask_servers(m.UseOptimizer(nth=self._optimizers, updater=updater.to_json()), "set_optimizer")

    def _set_rate(self, lr: float) -> None:
        if self.rank == 0:
            self._ask_servers(m.KeyRate(nth=self._optimizers, lr=lr), "set_learning_rate")

    def _compress(self, codec: str) -> None:
        self._ask_servers(m.Compress(codec=codec), "set_gradient_compression")
        self._session.node.channel.use(Stage(FlatMemory(), m.nature, up=read(codec), down=None))

    def _states(self, key: Key) -> KeyStates:
        parts = [self._states_of(key, part, number) for part, number in self._homes[key]]
        names = parts[0].tensors  # the same everywhere, as are the numbers: the parts are updated together
        tensors = {name: torch.cat([part.tensors[name].reshape(-1) for part in parts]) for name in names}
        return KeyStates(numbers=parts[0].numbers, single=parts[0].single, tensors=tensors)

    def _states_of(self, key: Key, part: ValuePart, number: int) -> KeyStates:
        what = f"the optimizer's states of key {key!r}"
        state = self._asking.answer(self._asking.ask(part.server, number, m.TakeState(), what))
        tensors = {}
        for name in state.names:
            answer = self._asking.answer(self._asking.ask(part.server, number, m.TakeTensor(name=name), what))
            tensors[name] = whole(answer.v).value().cpu()
        return KeyStates(numbers=state.numbers, single=state.single, tensors=tensors)

    def _load_states(self, key: Key, states: KeyStates) -> None:
        what = f"the optimizer's states of key {key!r}"
        vectors = {name: Flat.copy_of(v.reshape(-1)) for name, v in states.tensors.items()}
        said = m.PutState(numbers=states.numbers, single=states.single, names=tuple(vectors))
        for part, number in self._homes[key]:
            for name, v in vectors.items():
                put = m.PutTensor(name=name, v=v[part.at])
                self._asking.answer(self._asking.ask(part.server, number, put, what))
            self._asking.answer(self._asking.ask(part.server, number, said, what))

    # ---- together ----------------------------------------------------------------------------------------
    def barrier(self) -> None:
        self._asking.answer(self._asking.ask(0, GATE, m.Barrier(), "the barrier"))

    def close(self) -> None:
        """Leaves the run, once all pushes are answered; returns when all workers are done."""
        if self._asking.closed:
            return
        self._asking.closed = True
        try:
            if not self._session.over.is_set():
                for key in list(self._open):
                    self._settle(key)
            self._session.leave("the store was closed")
            self._session.wait_for_finish()
            self._session.done()
        finally:
            self._session.close()

    def abandon(self, cause: str, *, lost_another: bool = False) -> None:
        if not self._asking.closed:
            self._asking.closed = True
            with contextlib.suppress(PacelineError):  # the coordinator may be gone already
                self._session.tell(control.Failed(cause=cause[:2000], details=""))
            self._session.close()


def _joined(parts: Sequence[ValuePart], vectors: Sequence[AnyVector]) -> Tensor:
    """Returns one vector of the parts' answers. Raises ProtocolError for an answer of another length."""
    for part, v in zip(parts, vectors, strict=True):
        if len(v) != part.length:
            raise ProtocolError(f"server {part.server} answers with {len(v)} elements for {part.length}")
    return FlatMemory().join([whole(v) for v in vectors]).value()
