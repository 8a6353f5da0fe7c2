"""Holds one key, or one server's part of it: the "upon receiving" box of the store.

    of one worker            its requests about a key are served in the order in which it sent them
    upon Push of a group     sum <- sum + v;  when the last member's has come:
                                 w <- update(w, rescale sum / Y), or without an optimizer  w <- sum
                             and the pushes of all members are answered
    upon Pull                answered with w; under dist_ssync when its worker is at most `staleness` pushes ahead of
                             the slowest

Groups: all workers (dist_sync), given ones (dist_gsync), each worker by itself (dist_async, dist_ssync). Y is 1 but
for dist_gsync: there one plus the updates of other groups since the group's own last one, as in Grouping-SGD. Sums
are sums, never means. A worker that has left is waited for no longer; what it had pushed counts.

Example (dist_sync, workers 0 and 1, no optimizer):

    0: Push 2.0      waits: worker 1 is missing
    0: Pull          waits behind the push
    1: Push 3.0      w = 5.0; Done to 1, Done to 0, then Value 5.0 to 0
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from paceline.core.effects import Reply, Tell
from paceline.core.role import Role, RoleContext
from paceline.core.vector import Vector
from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore.optimizer_state import put_together, taken_apart
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.rows import rows_of, table_of, whole
from paceline.runtime.kvstore.store_spec import StoreSpec

TENSORS_MAX, NAME_CHARACTERS_MAX = 16, 64
"""Most tensors of the optimizer of one key, on their way to or from a file, and the longest name of one."""


@dataclass(slots=True)
class _Group:
    """Holds the pushes of a group that are not in an update yet. `come`: whose; `last`: the version of its last
    update."""

    members: tuple[int, ...]
    sum: Vector | None = None
    come: set[int] = field(default_factory=set)
    last: int = 0  # the version that its last update made


class KeyPart(Role):
    """Serves requests about one key, as it was declared. `updater` describes the optimizer in use, or None."""

    def __init__(self, store: StoreSpec, place: RoleContext, declared: m.Declare, updater: Updater | None) -> None:
        super().__init__(store, place)
        self.declared = declared
        self._store = store
        self._active = set(self.workers)
        self._lines: dict[int, deque[Any]] = {rank: deque() for rank in self.workers}
        self._groups = [_Group(members) for members in store.partition(len(self.workers))]
        self._group_of = {rank: group for group in self._groups for rank in group.members}
        self._begun: set[int] = set()
        self._applied: set[int] = set()  # workers whose push is in an update and not answered yet
        self._clocks = dict.fromkeys(self.workers, 0)  # pushes, by worker
        self._version = 0
        self._tensors: dict[str, Any] = {}
        self._updater, self._rule = updater, updater.rule_of(declared.key) if updater else None

    def use(self, updater: Updater) -> None:
        """Uses this updater from the next update on, with a new state."""
        self._updater, self._rule = updater, updater.rule_of(self.declared.key)

    def set_rate(self, lr: float) -> None:
        """Sets the learning rate of the optimizer, if there is one; the key's multiplier still applies."""
        if self._rule is not None and self._updater is not None:
            self._rule.set_lr(lr * self._updater.lr_mult.get(self.declared.key, 1.0))

    # ---- requests ----------------------------------------------------------------------------------------
    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Queues a request of worker `src`, and answers every request that can be answered now."""
        if src in self._active:
            self._lines[src].append(message)
            yield from self._serve()

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Drops the requests of a worker that left, and completes the update that waited for it alone."""
        self._active.discard(rank)
        self._lines[rank].clear()
        self._applied.discard(rank)
        self._complete(self._group_of[rank])
        yield from self._serve()

    def _serve(self) -> Iterator[Tell | Reply]:
        """Yields answers until no oldest request can be answered: one answer may make another possible."""
        served = True
        while served:
            served = False
            for rank in sorted(self._active):
                line = self._lines[rank]
                while line and (answer := self._answer(rank, line[0])) is not None:
                    line.popleft()
                    served = True
                    yield Reply(rank, answer)

    def _answer(self, rank: int, request: Any) -> Any | None:
        """Returns the answer to the oldest request of a worker; None as long as it has to wait."""
        match request:
            case m.BeginStore() | m.Await():
                return self._begin(rank, request)
            case _ if self.w is None:
                return None
            case m.KeyPush():
                return self._push(rank, request)
            case m.KeyPull():
                return None if self._ahead(rank) else m.Value(v=whole(self.w))
            case m.PullRows():
                return None if self._ahead(rank) else self._pull_rows(request)
            case _:
                return self._of_state(request)

    def _begin(self, rank: int, request: m.BeginStore | m.Await) -> m.Done | None:
        """Handles the barrier of `init`: it is answered when all have come and the first value is there."""
        self._begun.add(rank)
        if isinstance(request, m.BeginStore) and self.w is None:
            self.w = request.v
        return m.Done() if self.w is not None and self._begun >= self._active else None

    def _push(self, rank: int, push: m.KeyPush) -> Any | None:
        """Adds a push once, and returns its answer when the update with it was made; None until then.

        This is called again for a push that waits, so what was done is kept in `come` and `_applied`.
        """
        group = self._group_of[rank]
        if rank not in group.come and rank not in self._applied:
            if self._rule is None and self._store.needs_optimizer:
                return m.KeyRefused(
                    why=f"{self._store.type} adds up what comes when it comes: call set_optimizer first"
                )
            group.sum = push.v if group.sum is None else group.sum + push.v
            group.come.add(rank)
            self._complete(group)
        if rank not in self._applied or (push.pull and self._ahead(rank)):
            return None
        self._applied.discard(rank)
        return m.Value(v=whole(self.w)) if push.pull else m.Done()

    def _complete(self, group: _Group) -> None:
        """Makes the update of a group, once all its members that are still present have pushed."""
        if group.sum is None or not group.come >= self._active.intersection(group.members):
            return
        y = self._version - group.last + 1 if self._store.scheme == "gsp" else 1
        if self._rule is None or self._updater is None:
            self.w = group.sum
        else:
            w = table_of(self.w, group.sum) if self._rule.by_rows else whole(self.w)
            self.w = self._rule(w, group.sum * (self._updater.rescale / y), 0)
        self._version += 1
        group.last = self._version
        for rank in group.come:
            self._clocks[rank] += 1
        self._applied |= group.come & self._active
        group.sum = None
        group.come.clear()

    def _ahead(self, rank: int) -> bool:
        """Returns True if the worker is further ahead of the slowest than `staleness` allows."""
        slowest = min(self._clocks[other] for other in self._active)
        return self._store.scheme == "ssp" and self._clocks[rank] - slowest > self._store.staleness

    def _pull_rows(self, request: m.PullRows) -> m.Value | m.KeyRefused:
        """Answers with some rows of the value, or a refusal for rows that it does not have."""
        try:
            values = rows_of(self.w, whole(request.rows), request.width)
        except ValueError as error:
            return m.KeyRefused(why=f"key {self.declared.key}: {error}")
        return m.Value(v=values)

    # ---- the optimizer's memory --------------------------------------------------------------------------
    def _of_state(self, request: Any) -> Any:
        """Answers a request about the optimizer's state."""
        if self._rule is None:
            return m.KeyRefused(
                why="there is no optimizer whose states could be saved or loaded: call set_optimizer first"
            )
        match request:
            case m.TakeState():
                return self._state()
            case m.TakeTensor(name=name):
                return self._take(name)
            case m.PutTensor(name=name, v=v):
                return self._put(name, v)
            case m.PutState():
                return self._load_state(request)
        return m.KeyRefused(why=f"a server has no use for {type(request).__name__}")

    def _take(self, name: str) -> m.Value | m.KeyRefused:
        """Hands out a tensor that a TakeState before it named, and forgets it."""
        v = self._tensors.pop(name, None)
        return m.KeyRefused(why=f"there is no {name} to be taken") if v is None else m.Value(v=v)

    def _put(self, name: str, v: Vector) -> m.Done | m.KeyRefused:
        """Keeps a tensor until the PutState that names it. The number and the names are bounded, for workers are not
        trusted."""
        known = name in self._tensors
        if len(name) > NAME_CHARACTERS_MAX or (len(self._tensors) == TENSORS_MAX and not known):
            return m.KeyRefused(
                why=f"key {self.declared.key}: the optimizer has {TENSORS_MAX} tensors at most, with names of up to "
                f"{NAME_CHARACTERS_MAX} characters"
            )
        self._tensors[name] = v
        return m.Done()

    def _state(self) -> m.KeyState:
        """Answers with the numbers of the state; its tensors wait to be taken one by one."""
        assert self._rule is not None
        numbers, single, self._tensors = taken_apart(self._rule.state())
        return m.KeyState(numbers=numbers, single=single, names=tuple(self._tensors))

    def _load_state(self, request: m.PutState) -> m.Done | m.KeyRefused:
        """Loads a state from a PutState and the tensors before it, or refuses one that is of another optimizer."""
        assert self._rule is not None
        shape = self.declared.shape
        width = shape[1] if len(shape) == 2 else 0
        try:
            self._rule.load_state(put_together(request, self._tensors, len(whole(self.w)), width))
        except (KeyError, ValueError) as error:
            return m.KeyRefused(why=f"key {self.declared.key}: the states are those of another optimizer ({error})")
        finally:
            self._tensors = {}
        return m.Done()

    # ---- why nothing happens -----------------------------------------------------------------------------
    def holding_up(self, rank: int) -> set[int]:
        """Returns the ranks that the oldest open request of worker `rank` waits for, for the text of a timeout."""
        line = self._lines[rank]
        if self.w is None or (line and isinstance(line[0], m.BeginStore | m.Await)):
            return (self._active - self._begun) or {0}
        if line and isinstance(line[0], m.KeyPush) and rank not in self._applied:
            return self._active.intersection(self._group_of[rank].members) - self._group_of[rank].come
        with contextlib.suppress(ValueError):
            slowest = min(self._clocks[other] for other in self._active)
            return {other for other in self._active if self._clocks[other] == slowest} if line else set()
        return set()
