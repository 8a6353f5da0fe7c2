"""`pace.shard`: a worker's part of what can only be iterated over, such as a torch IterableDataset or a stream.

Item n of a pass is that of worker n modulo the number of workers: each is one worker's, and none is two workers'. All
workers have to iterate over the same items in the same order. Of what has a length and items by index only the own
ones are read; everything else is read by each worker, which leaves out what is not its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate, default_convert, get_worker_info

from paceline.core.errors import ConfigError
from paceline.engine.forward_samples import first_dimension
from paceline.runtime.worker.loop.loader import LoaderSettings


class StreamShard(IterableDataset[Any]):
    """Yields the items of worker `rank` of `workers` that are left of the pass; the next iteration is the next pass.

    `state_dict` and `load_state_dict` are what torchdata's StatefulDataLoader asks of a data set. In a DataLoader
    with processes of its own the items of this worker are dealt to these in turn, and each has a position of its
    own. Raises ConfigError for a source that cannot be iterated over.
    """

    def __init__(self, source: Iterable[Any], rank: int, workers: int) -> None:
        if not isinstance(source, Iterable) and not _has_index(source):
            raise ConfigError(f"pace.shard({type(source).__name__}): it cannot be iterated over")
        self.source, self.rank, self.workers = source, rank, workers
        self.epoch = self.items = 0  # passes that are over; own items of this pass that were handed out
        self.samples = 0  # own items of all passes that were handed out
        self._behind: int | None = None  # own items of all passes that earlier incarnations were given
        self._drawn = 0  # items of a source that can be iterated over once
        self._dealt = False  # is this a part of the part, that of a process of a DataLoader?

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        self._deal_among(1 if info is None else info.num_workers, 0 if info is None else info.id)
        for item in self.rest():
            self.handed_out(1)
            yield item
        self.end_pass()

    def rest(self) -> Iterator[Any]:
        """Returns the own items that are left of this pass, without counting them as handed out."""
        self.settle()
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(self.epoch)
        return self._own(self.items)

    def handed_out(self, items: int) -> None:
        """Counts items that the loop was given."""
        self.items += items
        self.samples += items

    def end_pass(self) -> None:
        """Begins the next pass."""
        self.epoch, self.items = self.epoch + 1, 0

    # ---- the position ------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, int]:
        """Returns the position: after the last item handed out, or after the last batch where `pace.loader`
        makes them."""
        self.settle()
        return {"epoch": self.epoch, "items": self.items, "rank": self.rank, "workers": self.workers}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on from a position. Raises ConfigError for the position of another part."""
        info = get_worker_info()
        if info is not None:
            self._deal_among(info.num_workers, info.id)
        theirs, ours = (state["rank"], state["workers"]), (self.rank, self.workers)
        if theirs != ours:
            raise ConfigError(
                f"pace.shard: the position is of part {theirs[0]} of {theirs[1]}, and this is part {ours[0]} of "
                f"{ours[1]}; resume with as many workers, and as many processes of a DataLoader"
            )
        self.epoch, self.items, self._behind = int(state["epoch"]), int(state["items"]), None

    def go_on(self, samples: int) -> None:
        """Goes on after `samples` items that earlier incarnations of this worker were given; to be called before any
        other."""
        self.samples = self._behind = samples

    def settle(self) -> None:
        """Finds out in which pass earlier incarnations have ended.

        A stream without a length must be counted once, which reads all of it.
        """
        behind, self._behind = self._behind, None
        if behind is None:
            return
        if isinstance(self.source, Iterator):
            own = 0  # there is but one pass
        elif _has_index(self.source):
            own = len(range(self.rank, len(self.source), self.workers))  # type: ignore[arg-type]
        else:
            own = sum(1 for _ in self._own(0)) if behind else 0
        self.epoch, self.items = divmod(behind, own) if own else (0, behind)

    @property
    def is_new(self) -> bool:
        """Returns True if nothing was handed out, and no position loaded."""
        return not (self.epoch or self.items)

    # ---- the items ---------------------------------------------------------------------------------------
    def _own(self, start: int) -> Iterator[Any]:
        """Yields the own items of a pass from the `start`-th."""
        first = self.rank + start * self.workers
        if _has_index(self.source):
            source: Any = self.source
            yield from (source[i] for i in range(first, len(source), self.workers))
            return
        drawn = self._drawn if isinstance(self.source, Iterator) else 0
        for item in itertools.islice(self.source, first - drawn, None, self.workers):
            self._drawn, first = first + 1, first + self.workers
            yield item

    def _deal_among(self, processes: int, process: int) -> None:
        """Takes, within a process of a DataLoader, the part of the part that is this process's."""
        if processes > 1 and not self._dealt:
            self._dealt = True
            self.rank, self.workers = self.rank + self.workers * process, self.workers * processes


class ShardBatches:
    """Yields the batches of a pass of `shard`, with the number of items in each.

    A DataLoader's processes make whole batches in turn, so they come in the same order however many there are.
    `batch_size` None: each item is a batch that is ready.
    """

    def __init__(self, shard: StreamShard, batch_size: int | None, settings: LoaderSettings) -> None:
        collate = settings.collate_fn or (default_convert if batch_size is None else default_collate)
        how = settings.how_to_load | {"collate_fn": _Counting(collate, batch_size is not None)}
        self._loader = DataLoader(_Blocks(shard, batch_size or 1), batch_size, drop_last=settings.drop_last, **how)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        return iter(self._loader)


class _Blocks(IterableDataset[Any]):
    """Yields the items of a shard of which one process of a DataLoader makes its batches."""

    def __init__(self, shard: StreamShard, batch_size: int) -> None:
        self._shard, self._batch_size = shard, batch_size

    def __iter__(self) -> Iterator[Any]:
        info, items = get_worker_info(), self._shard.rest()
        if info is None:
            return items
        return (item for n, item in enumerate(items) if n // self._batch_size % info.num_workers == info.id)


class _Counting:
    """Wraps a `collate_fn` so that it also returns the number of items it was given."""

    def __init__(self, collate: Callable[[Any], Any], many: bool) -> None:
        self._collate, self._many = collate, many

    def __call__(self, items: Any) -> tuple[Any, int]:
        return self._collate(items), len(items) if self._many else 1


def samples_in(batch: Any) -> int:
    """Returns the length of the first tensor with a dimension in `batch`, however nested it is; 1 if there is none."""
    found = first_dimension(batch)
    return 1 if found is None else found


def _has_index(source: object) -> bool:
    """Returns True for data whose samples have numbers: `pace.batches` divides those better."""
    indexed = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    return indexed and not isinstance(source, (Mapping, IterableDataset))
