"""Keeps what a worker remembers beside the model, for a checkpoint, without stopping the worker.

After each contribution the worker notes where it stands: how much of its data is behind it, and the states of its
random number generators. It keeps the last two of these positions, since a run may end when a contribution has been
handed over that is in no update. What is large (state of the local optimizer, residuals of codecs, batch-norm
statistics) is copied only when a checkpoint asks for it, between two exchanges, where nothing of this worker is
under way.

    contributed   positions {5, 6}; 6 is handed over, 5 was answered
    between       6 is answered; if a checkpoint wants 6 or less: copy, publish
    on_rollback   the servers went back before 6 arrived: positions {5}

Where one exchange takes several pieces of work, each is `contributed` to the same one, and `between` says how many
exchanges are over. Nothing is copied where the role is in the middle of one.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.core.effects import Piece
from paceline.core.fault_tolerance.snapshots import FORGET
from paceline.core.samples.dealt_log import DealtPiece
from paceline.engine.accelerators import generator_state, set_generator_state
from paceline.engine.vectors.flat import Flat
from paceline.live.node.node import Node
from paceline.live.node.published_state import STATE
from paceline.live.state.slice_state import CHECKPOINT, VERSION, kept, publish_state
from paceline.runtime.checkpointing.slice_capture import NOTHING

AT_ONCE = 0
"""Stands for a number of contributions: at the next clean point, whenever that is."""
Dealt = tuple[int, list[Piece]]
"""The length of a data set, and which of its samples a worker has drawn from the common queue, of the last epochs."""
DealtShares = tuple[int, list[DealtPiece]]
"""The length of a worker's share, and which samples of all shares it has trained in its present incarnation."""
Kept = tuple[dict[str, Any], dict[str, Flat]]
"""Facts that JSON can hold, and vectors by name, none longer than the model."""


@dataclass(frozen=True, slots=True)
class Position:
    """Describes where a worker stood: mini-batches done, samples of its share used, and its generators' states.

    Those of a worker of several processes are: of the first one torch's own, then what `of_ranks` has returned.
    samples: all that it has trained, those of shares that others have left included; -1 where that was not kept.
    drawn: how many of the common queue are among them; -1 where it does not draw from one, or that is not known.
    of_others: how many of shares of others are; -1 where there are no shares.
    """

    steps: int
    position: int
    generators: tuple[Tensor, ...]
    samples: int = -1
    drawn: int = -1
    of_others: int = -1

    def to_json(self, dealt: Dealt | None = None, shares: DealtShares | None = None) -> list[Any]:
        """Returns the position as a list for JSON; states of generators are base64. `dealt`, `shares`: which samples
        it has trained."""
        states = [base64.b64encode(state.numpy().tobytes()).decode() for state in self.generators]
        return [self.steps, self.position, states, self.samples, dealt, shares]

    @classmethod
    def from_json(cls, found: list[Any]) -> Position:
        """Returns the position of such a list, which `checkpoint_validation` has checked."""
        states = [torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8) for text in found[2]]
        return cls(int(found[0]), int(found[1]), tuple(states), int(found[3]) if len(found) > 3 else -1)


class PositionLog:
    """Logs the positions of one worker. `want` is called on the transport's thread, all else on the worker's own."""

    def __init__(
        self,
        node: Node,
        device: torch.device,
        large: Callable[[], Kept],
        of_ranks: Callable[[], Sequence[Tensor]] = tuple,
        dealt: Callable[[Position], tuple[Dealt | None, DealtShares | None]] = lambda position: (None, None),
    ) -> None:
        """`large` returns copies of what is large, and the facts that go with it; `of_ranks` the states of further
        generators, where a worker has several processes; `dealt` which samples were trained at a position."""
        self._node, self._device, self._large, self._of_ranks, self._dealt = node, device, large, of_ranks, dealt
        self._handed_over = self._met = self._begun = 0  # contributions; those among them that were answered
        self._entries: dict[int, Position] = {}
        self._lock = threading.Lock()
        self._wanted = FORGET
        self._whole, self._ends = True, False
        self._last: Kept | None = None  # once there will be no other
        self._shown: list[str] = []
        node.published[VERSION] = lambda _slice: (NOTHING, float(self._met))

    def begin(self, clock: int, steps: int, position: int) -> None:
        """Notes the beginning of this incarnation: nothing is handed over in it, and `clock` contributions in earlier
        ones."""
        self._handed_over = self._met = self._begun = clock
        self._entries = {self._met: Position(steps, position, self._generators(), drawn=0, of_others=0)}

    def corrected(self, position: int) -> None:
        """Corrects where the worker began in its data, unless something has been handed over since."""
        if self._handed_over == self._begun:
            entry = self._entries[self._begun]
            self._entries = {self._begun: dataclasses.replace(entry, position=position)}

    def contributed(self, steps: int, position: int, samples: int = -1, drawn: int = -1, of_others: int = -1) -> None:
        """Notes the position after a contribution: backward is over, and the next forward has not begun."""
        self._handed_over = self._met + 1
        before = self._entries.get(self._met)
        now = Position(steps, position, self._generators(), samples, drawn, of_others)
        self._entries = {self._handed_over: now, **({self._met: before} if before else {})}

    def _generators(self) -> tuple[Tensor, ...]:
        """Returns the states of all generators of this worker."""
        return (*generators(self._device), *self._of_ranks())

    def on_rollback(self) -> None:
        """Forgets the contribution that was handed over and not answered, if any: the servers went back before they had
        it."""
        if self._handed_over > self._met:
            del self._entries[self._handed_over]
            self._handed_over -= 1

    def between(self, exchanges: int | None = None, *, whole: bool = True) -> None:
        """Notes that all contributions are answered, and captures if a checkpoint waits for that.

        exchanges: that are over, where that is known: an exchange may take several contributions. whole: the role is
        not in the middle of one. Nothing happens after `end`.
        """
        if self._last is not None:
            return
        over, whole = self._handed_over if exchanges is None else exchanges, whole and not self._ends
        self._whole = whole
        if whole or over > self._met:
            before, last = self._entries.get(over - 1), self._entries[max(self._entries)]
            self._entries = {over: last, **({over - 1: before} if before else {})}
            self._met = self._handed_over = over
        if whole and self._wanted != FORGET:  # most of the time nobody asks: then this is all
            with self._lock:
                if FORGET != self._wanted <= self._met:
                    self._show(self._large())

    def last_exchange(self) -> None:
        """Notes that the last exchange begins. A longer run makes none here, so it cannot go on from what follows."""
        self._ends = True

    def end(self) -> None:
        """Notes that this worker trains no more, and captures its last state. Nothing happens the second time."""
        if self._last is not None:
            return
        facts, vectors = self._large()
        kept_last = {**facts, "whole": self._whole}, vectors
        with self._lock:
            self._last = kept_last
            if self._wanted != FORGET:
                self._show(kept_last)

    def want(self, contributions: int) -> None:
        """Captures after so many contributions, or as soon after that as possible; FORGET drops what was kept."""
        with self._lock:
            self._node.published.withdraw(self._shown)
            self._wanted, self._shown = contributions, []
            if contributions != FORGET and self._last is not None:
                self._show(self._last)

    def _show(self, of: Kept) -> None:
        """Publishes the captured state together with the last two positions; the checkpoint writer picks one."""
        facts, vectors = of
        entries = {clock: entry.to_json(*self._dealt(entry)) for clock, entry in self._entries.items()}
        state = publish_state({**facts, "clock": self._met, "entries": entries}, vectors, NOTHING)
        self._wanted = FORGET
        self._shown = [kept(CHECKPOINT, name) for name in (*vectors, STATE)]
        for name, v in vectors.items():
            self._node.published[kept(CHECKPOINT, name)] = functools.partial(lambda v, _slice: v, v)
        self._node.published[kept(CHECKPOINT, STATE)] = lambda _slice: state


# ---- generators --------------------------------------------------------------------------------------------------
def generators(device: torch.device) -> tuple[Tensor, ...]:
    """Returns the states of torch's generators, of the CPU and of a GPU."""
    cpu, own = torch.get_rng_state(), generator_state(device)
    return (cpu,) if own is None else (cpu, own)


def set_generators(states: Sequence[Tensor], device: torch.device) -> None:
    """Sets the states of torch's generators, of the CPU and, if there is a second one, of the GPU."""
    torch.set_rng_state(states[0])
    if len(states) > 1:
        set_generator_state(states[1], device)
