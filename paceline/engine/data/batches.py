"""A worker's stream of mini-batches over its share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from paceline.core.effects import Data
from paceline.core.errors import ConfigError
from paceline.core.samples.batch_cut import batch_of
from paceline.core.samples.dealt_log import DealtLog, DealtPiece
from paceline.core.samples.shares_kept import SharePiece
from paceline.engine.data.dataset import Dataset
from paceline.engine.data.partition_plan import PartitionPlan

PRIME = 1_000_003
ORDERS_KEPT = 2
"""Epochs whose order is kept: pieces of two follow one another at the turn, and after a loss."""


Indices = Tensor | np.ndarray
"""Numbers of samples [b]: a tensor beside a data set in tensors, otherwise an array, which becomes a list faster."""


class MapStyle(Protocol):
    """A user's torch Dataset: item i is (x, y). `__getitems__(list of i)` is used where there is one."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class BatchStream(ABC, Iterator[tuple[Tensor, Tensor]]):
    """Mini-batches (x [b, ...], y [b]) of `data`, on `device`; which samples are in them, subclasses say.

    epochs: how many passes; endless where it is None. samples: samples handed out.
    """

    epoch: int
    """Passes finished."""
    taken: Data = ()
    """Which samples the batches since `forget_taken` were made of, where they are leased."""

    def __init__(self, data: Dataset | MapStyle, batch_size: int, device: torch.device | str) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch size {batch_size}: must be 1 or more")
        self.data = data
        self.batch_size = batch_size
        self.device = torch.device(device)
        self.epochs: int | None = None
        self.samples = 0
        self._epochs_behind = 0  # of earlier incarnations, which the loop has not asked for again

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        part = self._some(self._cut(self.batch_size))
        if part is None:
            raise StopIteration
        return self._select(part)

    def take(self, samples: int) -> tuple[Tensor, Tensor] | None:
        """A batch of just that size: what an epoch lacks comes from the next one.

        Fewer only where the last epoch ends, None after that.
        """
        part = self._whole(samples)
        return None if part is None else self._select(part)

    def indices(self, samples: int, *, whole: bool = False) -> list[int] | None:
        """Which samples a batch of at most that size has; None when all is over. `whole`: of just that size, as `take`
        makes it."""
        part = self._whole(samples) if whole else self._some(self._cut(samples))
        if part is None:
            return None
        numbers: list[int] = part.tolist()
        return numbers

    def extend(self, epochs: int | None, *, anew: bool = False) -> None:
        """The loop goes on for so many more epochs; None: without end.

        A loop that is taken up again asks for all of them again, so the first ones are behind it. `anew`: there is a
        first batch as long as the run has one.
        """
        if epochs is None:
            self.epochs, self._epochs_behind = None, 0
            return
        owed = min(self._epochs_behind, epochs)
        self._epochs_behind -= owed
        self.epochs = self.epoch + epochs - owed

    def _whole(self, samples: int) -> Indices | None:
        parts, samples = [], self._cut(samples, of_all=True)
        while samples > 0 and (part := self._some(samples)) is not None:
            parts.append(part)
            samples -= len(part)
        return _joined(parts) if parts else None

    def forget_taken(self) -> None:
        """They have been handed over."""

    def _cut(self, samples: int, *, of_all: bool = False) -> int:
        """The size of the next mini-batch of so many samples; of_all: what this epoch lacks comes from the next."""
        return samples

    @abstractmethod
    def _some(self, samples: int) -> Indices | None:
        """The indices of so many samples, or of fewer where something ends; None when all is over."""

    def _placed(self, order: np.ndarray) -> Indices:
        """Returns the indices where the samples lie."""
        return torch.from_numpy(order).to(self.data.x.device) if isinstance(self.data, Dataset) else order

    def _seed(self, part: Tensor) -> int:
        """Returns what decides how a batch is varied: the same again after a resume, another on each worker."""
        if not isinstance(self.data, Dataset) or self.data.augmentation is None:
            return 0
        return (self.samples * PRIME + int(part[0])) % 2**63

    def _select(self, part: Indices) -> tuple[Tensor, Tensor]:
        if isinstance(self.data, Dataset):
            assert isinstance(part, Tensor)
            x, y = self.data.batch(part, self._seed(part))
        else:
            x, y = collated(self.data, part.tolist())
        return x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)


class PieceStream(BatchStream):
    """Mini-batches of pieces of epochs: of samples that follow one another in the order of an epoch."""

    def __init__(
        self,
        data: Dataset | MapStyle,
        batch_size: int,
        device: torch.device | str,
        order: Callable[[int], np.ndarray],
    ) -> None:
        """`order`: of an epoch, int64 [n], the same on every worker."""
        super().__init__(data, batch_size, device)
        self._order_of = order
        self._orders: dict[int, Indices] = {}

    def go_on(self, samples: int) -> None:
        """So many were handed out by earlier incarnations of this worker; to be called before any is."""
        self.samples = samples

    def skip(self, batches: int) -> None:
        """The same, of so many mini-batches."""
        self.go_on(batches * self.batch_size)

    def _piece(self, epoch: int, start: int, stop: int) -> Indices:
        """Hands out the indices of these places of `epoch`."""
        self.samples += stop - start
        if epoch not in self._orders:
            while len(self._orders) >= ORDERS_KEPT:
                del self._orders[min(self._orders)]
            self._orders[epoch] = self._placed(self._order_of(epoch))
        return self._orders[epoch][start:stop]


class LeftPieces(Protocol):
    """Gives pieces of shares that other workers have left (`paceline.core.samples.left_shares`)."""

    def take(self, samples: int, epochs: int, *, trained: int, ends: bool) -> SharePiece | None:
        """Returns a piece of at most so many samples of the first `epochs` epochs (0: of all, but of its own share
        only); None where none is left.

        trained: samples of earlier pieces. ends: this worker has no other samples.
        """


class Batches(BatchStream):
    """Iterator of (x [b, ...], y [b]) over the share of `rank`, epoch after epoch, on `device`.

    b is `batch_size` but for the last batch of an epoch, which holds what is left, and the one before it, so that none
    of several shares ends with a single sample (`paceline.core.samples.batch_cut`). Endless, unless `epochs` says how
    many passes; an empty share gives nothing. The order of an epoch depends on the shares alone.

    After each epoch of its share come pieces of the same epochs that other workers have left, if `others` has any. A
    worker that is `back` has no share of its own any more: it takes pieces, of that share first.

    Raises ConfigError for a batch size below 1, a negative number of epochs, or a rank without a share.
    """

    others: LeftPieces | None = None
    back = False
    at_hand = 0
    """Samples that the loop was given since its last step."""

    def __init__(
        self,
        data: Dataset | MapStyle,
        shares: PartitionPlan,
        rank: int,
        batch_size: int,
        *,
        device: torch.device | str = "cpu",
        epochs: int | None = None,
    ) -> None:
        super().__init__(data, batch_size, device)
        if epochs is not None and epochs < 0:
            raise ConfigError(f"{epochs} epochs: must be 0 or more")
        try:
            self.share_size = shares.size(rank)
        except IndexError as error:
            raise ConfigError(str(error)) from None
        self.shares = shares
        self._divided = _are_several(shares)
        self.rank = rank
        self.epochs = epochs
        self.epoch = 0
        self._order: Indices | None = None  # the indices of this epoch, where the samples lie
        self._at = 0
        self._order_of_piece: tuple[tuple[int, int], Indices] | None = None  # of another share, by rank and epoch
        self._untrained: deque[tuple[bool, int]] = deque()  # samples handed out, and whether they are of its share
        self.trained_of = {True: 0, False: 0}  # samples of its share that were trained; and of pieces of others
        self._begun_at = 0  # samples of its share that earlier incarnations have trained
        self._pieces = DealtLog()  # of others

    @property
    def steps_per_epoch(self) -> int:
        threes = self._divided and self.batch_size == 2 and self.share_size % 2 and self.share_size > 1
        return self.share_size // 2 if threes else -(-self.share_size // self.batch_size)

    def skip(self, batches: int) -> None:
        """As if the first `batches` had been handed out; to be called before any is."""
        if self.share_size:
            self.epoch, rest = divmod(batches, self.steps_per_epoch)
            self.samples, self._epochs_behind = self.epoch * self.share_size, self.epoch
            for _ in range(rest):
                self._some(self._cut(self.batch_size))
            self.begin()

    def go_on(self, samples: int) -> None:
        """As if so many samples had been handed out; to be called before any is."""
        if self.share_size:
            self.samples = samples
            self.epoch, self._at = divmod(samples, self.share_size)
            self._epochs_behind = self.epoch
            self._order = self._draw() if self._at else None
            self.begin()

    def _some(self, samples: int) -> Indices | None:
        """The indices of so many samples or, at the end of an epoch, of those that are left; None when all is over."""
        if self.others is not None and (self.back or (self._at == 0 and self.epoch and not self._epochs_behind)):
            part = self._of_others(self.others, samples)
            if part is not None or self.back:
                return part
        if self.share_size == 0 or self.epoch == self.epochs:
            return None
        if self._order is None:
            self._order = self._draw()
        start, self._at = self._at, min(self._at + samples, self.share_size)
        part = self._order[start : self._at]
        self.samples += self._at - start
        self._hand_out(self._at - start, own=True)
        if self._at == self.share_size:
            self._at, self._order = 0, None
            self.epoch += 1
        return part

    def _cut(self, samples: int, *, of_all: bool = False) -> int:
        left = self.share_size - self._at
        if of_all:
            left += ((self.epochs or self.epoch) - self.epoch - 1) * self.share_size
        return batch_of(left, samples) if self._divided and left > samples else samples

    def _draw(self) -> Indices:
        return self._placed(self.shares.indices(self.rank, self.epoch))

    def _of_others(self, others: LeftPieces, samples: int) -> Indices | None:
        """The indices of a piece that another worker has left, of the epochs that are over for this one."""
        epochs = (self.epochs or 0) if self.back else self.epoch
        ends = self.back or self.epoch == self.epochs
        piece = others.take(samples, epochs, trained=self.trained_of[False], ends=ends)
        if piece is None:
            return None
        if piece.rank == self.rank:
            self.samples = piece.stop
        self._hand_out(piece.stop - piece.start, own=False)
        self._pieces.add(piece.epoch, piece.start, piece.stop, piece.rank)
        key = piece.rank, piece.epoch
        if self._order_of_piece is None or self._order_of_piece[0] != key:
            self._order_of_piece = key, self._placed(self.shares.indices(*key))
        first = piece.epoch * self.shares.size(piece.rank)
        return self._order_of_piece[1][piece.start - first : piece.stop - first]

    def extend(self, epochs: int | None, *, anew: bool = False) -> None:
        if self.back and epochs is not None:  # it does again what it had done in its earlier incarnation
            self.epochs = (self.epochs or 0) + epochs
        else:
            super().extend(epochs)

    def begin(self) -> None:
        """The samples that were handed out by now were trained by earlier incarnations."""
        self._untrained.clear()
        self._begun_at = self.samples
        self.trained_of = {True: self.samples, False: 0}

    def pieces_trained(self, position: int, of_others: int) -> list[DealtPiece]:
        """Returns which samples this incarnation has trained when its share was trained up to `position`, and so many
        `of_others`; those of its share in one piece, of epoch 0."""
        own = [(0, self._begun_at, position, self.rank)] if position > self._begun_at and not self.back else []
        return own + self._pieces.first(of_others)

    def _hand_out(self, samples: int, *, own: bool) -> None:
        """Notes that samples are handed out."""
        if self._untrained and self._untrained[-1][0] == own:
            samples += self._untrained.pop()[1]
        self._untrained.append((own, samples))

    def trained(self, samples: int) -> None:
        """The first so many samples that were handed out and not trained yet are trained now."""
        while samples > 0 and self._untrained:
            own, there = self._untrained.popleft()
            part = min(there, samples)
            if part < there:
                self._untrained.appendleft((own, there - part))
            self.trained_of[own] += part
            samples -= part


def _are_several(shares: PartitionPlan) -> bool:
    """Returns True if there are shares of several ranks."""
    try:
        shares.size(1)
    except IndexError:
        return False
    return True


def _joined(parts: list[Any]) -> Indices:
    if len(parts) == 1:
        return parts[0]  # type: ignore[no-any-return]
    return torch.cat(parts) if isinstance(parts[0], Tensor) else np.concatenate(parts)


def collated(data: MapStyle, indices: list[int]) -> tuple[Tensor, Tensor]:
    """Returns the samples of these numbers as (x, y). Raises TypeError for items that are no pairs."""
    many = getattr(data, "__getitems__", None)
    batch = default_collate(many(indices) if many else [data[i] for i in indices])
    match batch:
        case [Tensor() as x, Tensor() as y]:
            return x, y
        case _:
            raise TypeError(
                f"an item of {type(data).__name__} must be (x, y), two tensors or numbers: pace.loader takes any items"
            )
