"""Decides who gets which samples. In every epoch the shares of all ranks cover every sample exactly once.

    uniform              equal parts; where workers have unlike batches, parts in proportion to these
    fractions:A,B,...    parts in proportion to one weight a rank; zero gets nothing
    speed                parts in proportion to 1 / seconds per step, so that unlike workers finish an epoch together
    file:PATH            MXNet-G's `data_sharding` file: one line `start end` a rank, in 0..1
    class                sorted by label, then cut: each rank sees few classes
    dirichlet:ALPHA      each class spread in proportions drawn from Dirichlet(ALPHA)
    queue, queue:N       nobody has a share: workers are given leases of N samples as they go (`data.leased`)

The first four redraw the whole order every epoch before they cut, so over time every worker sees all data. `class` and
`dirichlet` are not i.i.d. on purpose: who has what stays, only the order within a share changes. An epoch is a pass of
one worker through its share: two that make as many steps on unlike shares are in unlike epochs. No torch in here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.engine.data.partition import apportion, by_class, by_dirichlet, random_state, read_sharding

QUEUE = "queue"
KINDS = ("uniform", "speed", "class", "dirichlet", "fractions", "file", QUEUE)
LEASE_MAX = 2**31
ALPHA_MIN, ALPHA_MAX = 1e-6, 1e6
_ARGUMENTS = {
    "dirichlet": "dirichlet:ALPHA, such as dirichlet:0.3",
    "fractions": "fractions:A,B,..., such as fractions:0.5,0.25,0.25",
    "file": "file:PATH",
    QUEUE: "queue or queue:N, N samples a lease, such as queue:64",
}
LEASES_A_WORKER = 16
"""Leases of a worker in an epoch, where their size is not given: at the epoch's end no slow one takes long."""


class PartitionPlan(ABC):
    """Says which samples each rank trains on, the same on every machine."""

    @abstractmethod
    def indices(self, rank: int, epoch: int) -> np.ndarray:
        """Returns the samples of `rank` in `epoch`, in order, as int64. Raises IndexError for no such rank."""

    @abstractmethod
    def size(self, rank: int) -> int:
        """Returns how many samples `rank` has, the same in every epoch. Raises IndexError for no such rank."""


@dataclass(frozen=True, slots=True, eq=False)
class Redrawn(PartitionPlan):
    """Draws one permutation of all samples per epoch, of which `rank` takes `slices[rank]`."""

    slices: tuple[slice, ...]
    n: int
    seed: int

    def indices(self, rank: int, epoch: int) -> np.ndarray:
        part = self.slices[_rank(rank, len(self.slices))]
        return epoch_order(self.n, self.seed, epoch)[part].copy()  # so that the rest of the permutation can be freed

    def size(self, rank: int) -> int:
        part = self.slices[_rank(rank, len(self.slices))]
        return int(part.stop - part.start)


@dataclass(frozen=True, slots=True, eq=False)
class Assigned(PartitionPlan):
    """Gives rank r the samples `parts[r]` for good, in a new order every epoch."""

    parts: tuple[np.ndarray, ...]
    seed: int

    def indices(self, rank: int, epoch: int) -> np.ndarray:
        part = self.parts[_rank(rank, len(self.parts))]
        order: np.ndarray = part[random_state(self.seed, 1, epoch, rank).permutation(len(part))]
        return order

    def size(self, rank: int) -> int:
        return len(self.parts[_rank(rank, len(self.parts))])


def _rank(rank: int, workers: int) -> int:
    if not 0 <= rank < workers:
        raise IndexError(f"no rank {rank} among {workers} workers")
    return rank


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecipe:
    """Holds the text form, taken apart: `kind` is one of KINDS, the rest is what that kind needs."""

    kind: str
    weights: tuple[float, ...] = ()
    alpha: float = 0.0
    path: str = ""
    lease: int = 0

    @property
    def leased(self) -> bool:
        return self.kind == QUEUE

    def lease_size(self, samples: int, workers: int, batch_size: int) -> int:
        """Returns the samples of a lease: whole mini-batches, where it was not given (0)."""
        return self.lease or max(1, round(samples / (LEASES_A_WORKER * workers * batch_size))) * batch_size


def parse_partition(text: str) -> PartitionRecipe:
    """Takes the text form apart; reads no file. Raises ConfigError with the nearest kind or the form to write."""
    kind, colon, argument = text.partition(":")
    if kind not in KINDS:
        raise ConfigError(f"unknown partition {text!r}{nearest(QUEUE if kind == 'leased' else kind, KINDS)}")
    # From here on: no argument is allowed; then one that may be left out; then one that must be there.
    if kind not in _ARGUMENTS:
        if colon:
            raise ConfigError(f"partition {text!r}: {kind} takes nothing after it")
        return PartitionRecipe(kind=kind)
    if kind == QUEUE and not colon:
        return PartitionRecipe(kind=kind)
    if not argument:
        raise ConfigError(f"partition {text!r}: write {_ARGUMENTS[kind]}")
    if kind == "file":
        return PartitionRecipe(kind=kind, path=argument)
    try:
        numbers = tuple(float(number) for number in argument.split(","))
    except ValueError:
        raise ConfigError(f"partition {text!r}: not a number; write {_ARGUMENTS[kind]}") from None
    if kind == QUEUE:
        return PartitionRecipe(kind=kind, lease=_lease(text, numbers))
    if kind == "fractions":
        _check_weights(f"partition {text!r}", numbers)
        return PartitionRecipe(kind=kind, weights=numbers)
    if len(numbers) != 1 or not ALPHA_MIN <= numbers[0] <= ALPHA_MAX:
        raise ConfigError(f"partition {text!r}: ALPHA must be one number between {ALPHA_MIN:g} and {ALPHA_MAX:g}")
    return PartitionRecipe(kind=kind, alpha=numbers[0])


def make_partition(
    text: str,
    n: int,
    workers: int,
    labels: np.ndarray | None = None,
    seed: int = 0,
    seconds_per_step: Sequence[float] = (),
    batches: Sequence[int] = (),
) -> PartitionPlan:
    """Divides `n` samples among `workers` ranks, as `text` says.

    labels: int [n], for class and dirichlet. seconds_per_step: one positive number a rank, for speed. batches:
    samples of a mini-batch of each rank, for uniform; empty where all are alike. Raises
    ConfigError for a bad text, what it needs and was not given, or fewer samples than workers.
    """
    recipe = parse_partition(text)
    if not 1 <= workers <= n:
        raise ConfigError(f"cannot share {n} samples among {workers} workers: each needs one at least")
    match recipe.kind:
        case "queue":
            raise ConfigError(f"partition {text!r}: it gives no worker a share in advance")
        case "class":
            return _assigned(by_class(_labels(text, labels, n), workers), workers, seed)
        case "dirichlet":
            return _assigned(by_dirichlet(_labels(text, labels, n), workers, recipe.alpha, seed), workers, seed)
        case "file":
            slices = read_sharding(Path(recipe.path), workers)
            order = np.lexsort((slices[:, 1], slices[:, 0]))
            return _redrawn(slices[:, 1] - slices[:, 0], order, n, seed)
        case "fractions":
            weights = _one_each(f"partition {text!r}", "fractions", recipe.weights, workers)
        case "speed":
            seconds = _one_each("partition 'speed'", "measured seconds per step", _measured(seconds_per_step), workers)
            weights = seconds.min() / seconds  # not 1 / seconds, which may overflow
        case _:
            weights = np.asarray(batches, np.float64) if batches else np.ones(workers)
    return _redrawn(weights, np.arange(workers), n, seed)


def _redrawn(weights: np.ndarray, order: np.ndarray, n: int, seed: int) -> Redrawn:
    """Returns the plan for these weights; `order`: the ranks in the order of their slices."""
    counts = apportion(weights[order], n)
    stops = np.cumsum(counts)
    slices = {int(r): slice(int(b - c), int(b)) for r, b, c in zip(order, stops, counts, strict=True)}
    return Redrawn(tuple(slices[rank] for rank in range(len(order))), n, seed)


def _assigned(owner: np.ndarray, workers: int, seed: int) -> Assigned:
    stops = np.cumsum(np.bincount(owner, minlength=workers))[:-1]
    return Assigned(tuple(np.split(np.argsort(owner, kind="stable").astype(np.int64), stops)), seed)


def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray:
    """Returns int64 [n]: all samples in the order of that epoch, the same on every machine."""
    return random_state(seed, 0, epoch).permutation(n).astype(np.int64, copy=False)


def _lease(text: str, numbers: Sequence[float]) -> int:
    if len(numbers) != 1 or not 1 <= numbers[0] <= LEASE_MAX or numbers[0] % 1:
        raise ConfigError(f"partition {text!r}: N must be a whole number from 1 to {LEASE_MAX:,}")
    return int(numbers[0])


def _labels(text: str, labels: np.ndarray | None, n: int) -> np.ndarray:
    if labels is None or len(labels) != n:
        found = "there are none" if labels is None else f"there are {len(labels)}"
        raise ConfigError(f"partition {text!r} needs the labels of all {n} samples and {found}; take uniform instead")
    return np.asarray(labels)


def _measured(seconds: Sequence[float]) -> Sequence[float]:
    if not all(math.isfinite(s) and s > 0 for s in seconds):
        raise ConfigError(f"partition 'speed': seconds per step must be positive, not {list(seconds)}")
    return seconds


def _one_each(label: str, what: str, numbers: Sequence[float], workers: int) -> np.ndarray:
    if len(numbers) != workers:
        raise ConfigError(f"{label}: {len(numbers)} {what} for {workers} workers; one each is needed")
    return np.asarray(numbers, np.float64)


def _check_weights(label: str, weights: Sequence[float]) -> None:
    if not all(math.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise ConfigError(f"{label}: weights must be zero or positive, and not all zero")
