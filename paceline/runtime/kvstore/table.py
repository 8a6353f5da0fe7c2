"""Holds one server of a store: its directory, the gate of barriers, and its keys, each in a slice of its own.

slice 0    `Directory`: declares keys, sets the optimizer and the codec
slice 1    `BarrierRole`, on server 0
slice 2... `KeyPart`, one for each key, in the order in which they were declared here
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.codec.base import read
from paceline.codec.pipeline.stage import Stage
from paceline.core.effects import Reply, Tell
from paceline.core.errors import ConfigError
from paceline.core.role import Role, RoleContext
from paceline.engine.vectors.flat import FlatMemory
from paceline.live.host_info import memory_bytes
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.node import Node
from paceline.runtime.kvstore import messages as m
from paceline.runtime.kvstore.key import KeyPart
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.store_spec import StoreSpec

DIRECTORY, GATE, FIRST_KEY = 0, 1, 2
SLICES_MAX = 1 << 16
"""A frame has 16 bits for the number of a slice."""
KEY_CHARACTERS_MAX, DIMENSIONS_MAX = 1024, 64
OPTIMIZERS_MAX = 1 << 12
"""Optimizers that may be set one after the other: each is remembered, in case another worker sets a different one."""


class BarrierRole(Role):
    """Answers barriers once all workers that are still present have come."""

    def __init__(self, store: StoreSpec, place: RoleContext) -> None:
        super().__init__(store, place)
        self._active, self.come = set(self.workers), set[int]()

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Takes a worker that has come to the barrier; answers all once the last is there."""
        self.come.add(src)
        yield from self._open()

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Waits for that worker no more, which may open the barrier."""
        self._active.discard(rank)
        self.come.discard(rank)
        yield from self._open()

    def _open(self) -> Iterator[Tell | Reply]:
        """Answers everybody when the last one has come."""
        if self.come and self.come >= self._active:
            come, self.come = self.come, set()
            yield from (Reply(rank, m.Done()) for rank in sorted(come))

    def holding_up(self, rank: int) -> set[int]:
        """Returns the ranks that have not come."""
        return self._active - self.come


class Directory(Role):
    """Declares keys, and holds what is common to all of them. It answers every question at once.

    All workers call the same functions with the same arguments, in any order of arrival. So the first call decides,
    and a different one is refused with a line that names both.
    """

    def __init__(self, store: StoreSpec, place: RoleContext, node: Node) -> None:
        super().__init__(store, place)
        self._store, self._node = store, node
        self.hosted = [ServedSlice(length=1, role=self), ServedSlice(role=BarrierRole(store, self._place(GATE)))]
        self._numbers: dict[str, int] = {}
        self._nbytes = 0  # of all values
        self._updaters: dict[int, Updater] = {}  # the n-th that every worker has set, or will
        self._newest = 0
        self._lr: float | None = None
        self._codec = ""

    def _place(self, number: int) -> RoleContext:
        """Returns the context of a role in slice `number`."""
        return RoleContext(me=number, workers=self.workers, w=None, update=self.place.update)

    def on(self, now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
        """Answers a question about keys at once."""
        yield Reply(src, self._answer(src, message))

    def _answer(self, src: int, message: Any) -> Any:
        """Returns the answer, or KeyRefused with the reason."""
        match message:
            case m.Declare():
                return self._declare(src, message)
            case m.UseOptimizer():
                return self._use(src, message)
            case m.KeyRate():
                return self._set_rate(message)
            case m.Compress(codec=codec):
                return self._compress(src, codec)
            case m.Who(number=number) if number < len(self.hosted):
                role: Any = self.hosted[number].role
                return m.Ranks(ranks=tuple(sorted(role.holding_up(src))))
        return m.KeyRefused(why=f"a server has no answer to {type(message).__name__}")

    def holding_up(self, rank: int) -> set[int]:
        """Returns no rank: nobody waits for the directory."""
        return set()

    # ---- keys --------------------------------------------------------------------------------------------
    def _declare(self, src: int, declared: m.Declare) -> m.Numbered | m.KeyRefused:
        """Returns the slice of a key, which is made at its first declaration. The sizes are checked, for workers are
        not trusted."""
        number = self._numbers.get(declared.key)
        if number is not None:
            known = self._key(number).declared
            if known != declared:
                return m.KeyRefused(
                    why=f"worker {src} initialises key {declared.key} with {_kind(declared)}, another worker with "
                    f"{_kind(known)}: give all workers the same"
                )
            return m.Numbered(number=number)
        for what, count, most in (
            ("characters", len(declared.key), KEY_CHARACTERS_MAX),
            ("dimensions", len(declared.shape), DIMENSIONS_MAX),
        ):
            if count > most:
                return m.KeyRefused(why=f"key {declared.key:.40} has {count} {what}: {most} at most")
        if len(self.hosted) == SLICES_MAX:
            return m.KeyRefused(why=f"a server holds {SLICES_MAX - FIRST_KEY} keys at most: start more servers")
        if declared.length < 0:
            return m.KeyRefused(why=f"key {declared.key:.40} has {declared.length} values")
        nbytes, most = self._nbytes + 4 * declared.length, memory_bytes()
        if nbytes > most > 0:
            return m.KeyRefused(
                why=f"key {declared.key:.40}: with it a server's keys take {nbytes / 2**30:.1f} GiB, and its machine "
                f"has {most / 2**30:.1f}: start servers on more machines"
            )
        self._nbytes = nbytes
        number = self._numbers[declared.key] = len(self.hosted)
        role = KeyPart(self._store, self._place(number), declared, self._updaters.get(self._newest))
        if self._lr is not None:
            role.set_rate(self._lr)
        self.hosted.append(ServedSlice(length=declared.length, role=role))
        return m.Numbered(number=number)

    def _key(self, number: int) -> KeyPart:
        """Returns the role of the key in slice `number`."""
        role = self.hosted[number].role
        assert isinstance(role, KeyPart)
        return role

    def _keys(self) -> list[KeyPart]:
        """Returns the roles of all keys."""
        return [self._key(number) for number in self._numbers.values()]

    # ---- what holds for all of them ----------------------------------------------------------------------
    def _use(self, src: int, message: m.UseOptimizer) -> m.Done | m.KeyRefused:
        """Sets the optimizer of all keys, when the first worker sets its n-th one; the others must set the same."""
        try:
            updater = Updater.from_json(message.updater)
        except ConfigError as error:
            return m.KeyRefused(why=str(error))
        if message.nth > OPTIMIZERS_MAX:
            return m.KeyRefused(
                why=f"set_optimizer is for {OPTIMIZERS_MAX} times at most: call set_learning_rate instead"
            )
        known = self._updaters.setdefault(message.nth, updater)
        if known != updater:
            return m.KeyRefused(
                why=f"worker {src} sets the optimizer {updater.name} {updater.numbers}, another worker {known.name} "
                f"{known.numbers}: give all workers the same"
            )
        if message.nth > self._newest:
            self._newest, self._lr = message.nth, None
            for key in self._keys():
                key.use(updater)
        return m.Done()

    def _set_rate(self, message: m.KeyRate) -> m.Done:
        """Sets the learning rate of all keys, unless the optimizer that it was meant for is no longer in use."""
        if message.nth == self._newest:
            self._lr = message.lr
            for key in self._keys():
                key.set_rate(message.lr)
        return m.Done()

    def _compress(self, src: int, codec: str) -> m.Done | m.KeyRefused:
        """Sets the codec of pushes, which must happen before the first key, and with one codec by all workers."""
        if self._codec and codec != self._codec:
            return m.KeyRefused(
                why=f"worker {src} compresses with {codec}, another worker with {self._codec}: give all the same"
            )
        if self._numbers and not self._codec:
            return m.KeyRefused(why="set_gradient_compression comes before the first init")
        if codec == self._codec:
            return m.Done()
        try:
            stage = Stage(FlatMemory(), m.nature, up=read(codec), down=None, of_server=True)
        except ConfigError as error:
            return m.KeyRefused(why=str(error))
        self._codec = codec
        self._node.channel.use(stage)
        return m.Done()


def _kind(declared: m.Declare) -> str:
    """Returns type and shape of a declared value, for errors."""
    return f"{declared.dtype} of shape {declared.shape}"


def open_table(node: Node, store: StoreSpec, workers: int) -> list[ServedSlice]:
    """The slices that a server of `store` begins with; a new key adds one to the list."""
    # torch takes seconds over its first optimizer. Here they are the party's own; later they would be those of the
    # thread that answers, and a server that is silent for so long is given up.
    Updater(name="Adam").make_rule()
    place = RoleContext(me=DIRECTORY, workers=tuple(range(workers)), w=None, update=_by_key)
    return Directory(store, place, node).hosted


def _by_key(w: Any, g: Any, samples: int) -> Any:
    """Is never called: every key has a rule of its own."""
    raise AssertionError("every key has a rule of its own")
