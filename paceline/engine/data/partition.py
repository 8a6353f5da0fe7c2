"""Computes shares: how many samples each rank gets, and which. numpy only.

Random numbers come from `RandomState`, whose streams numpy promises never to change: unlike machines run unlike
versions, and must still agree on who has which sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.core.errors import ConfigError

TOLERANCE = 1e-6


def random_state(seed: int, *words: int) -> np.random.RandomState:
    """Returns a stream of its own for each (seed, words); each word in 0 .. 2**32 - 1."""
    mask = 0xFFFFFFFF
    return np.random.RandomState([seed & mask, seed >> 32 & mask, *words])


def apportion(weights: np.ndarray, n: int) -> np.ndarray:
    """Returns int64 [k], sum n: how many of n samples each of k weights gets, by rounding the edges between them.

    A positive weight gets at least one sample, a zero weight none. Needs n >= k and a positive weight.
    """
    edges = np.cumsum(weights / weights.max())  # divided first: the sum of huge weights would overflow
    counts: np.ndarray = np.diff(np.floor(edges / edges[-1] * n + 0.5).astype(np.int64), prepend=0)
    for poor in np.flatnonzero((counts == 0) & (weights > 0)):
        counts[counts.argmax()] -= 1
        counts[poor] += 1
    return counts


def by_class(labels: np.ndarray, workers: int) -> np.ndarray:
    """Returns int64 [n], the owner of each sample: samples sorted by label, cut into equal contiguous slices."""
    owner = np.empty(len(labels), np.int64)
    counts = apportion(np.ones(workers), len(labels))
    owner[np.argsort(labels, kind="stable")] = np.repeat(np.arange(workers), counts)
    return owner


def by_dirichlet(labels: np.ndarray, workers: int, alpha: float, seed: int) -> np.ndarray:
    """Returns int64 [n], the owner of each sample.

    Each class is spread over the ranks in proportions drawn from Dirichlet(alpha): Hsu, Qi and Brown 2019 (arXiv
    1909.06335). The smaller alpha, the less alike the shares. A rank that drew nothing is given a sample of the largest
    share. Needs n >= workers.
    """
    random = random_state(seed, 2)
    owner = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        edges = np.cumsum(_dirichlet(random, alpha, workers))
        stops = np.floor(edges / edges[-1] * len(members) + 0.5).astype(np.int64)
        owner[members] = np.repeat(np.arange(workers), np.diff(stops, prepend=0))
    _fill_empty(owner, workers)
    return owner


def _dirichlet(random: np.random.RandomState, alpha: float, k: int) -> np.ndarray:
    """Returns float64 [k], proportional to the result.

    Gamma(a) = Gamma(a + 1) U^(1/a), in logarithms: a small alpha would underflow.
    """
    logs = np.log(random.standard_gamma(alpha + 1, k)) + np.log1p(-random.random_sample(k)) / alpha
    weights: np.ndarray = np.exp(logs - logs.max())
    return weights


def _fill_empty(owner: np.ndarray, workers: int) -> None:
    """Gives each rank without a sample one of the rank that has the most."""
    counts = np.bincount(owner, minlength=workers)
    for poor in np.flatnonzero(counts == 0):
        rich = counts.argmax()
        owner[np.flatnonzero(owner == rich)[-1]] = poor
        counts[rich] -= 1
        counts[poor] += 1


def read_sharding(path: Path, workers: int) -> np.ndarray:
    """Returns float64 [workers, 2]: each rank's `start end` in 0..1, from the `data_sharding` file of MXNet-G.

    It has a line a rank; blank lines and lines that start with # do not count. Raises ConfigError when the lines do not
    tile 0..1.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the data_sharding file {path} ({error})") from None
    numbered = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    if len(numbered) != workers:
        raise ConfigError(
            f"{path} has {len(numbered)} lines for {workers} workers: write one line `start end` a worker"
        )
    slices = np.array([_read_slice(path, i, line) for i, line in numbered])
    _check_tiling(path, slices, [i for i, _ in numbered])
    return slices


def _read_slice(path: Path, number: int, line: str) -> tuple[float, float]:
    try:
        start, end = map(float, line.split())
    except ValueError:
        raise ConfigError(f"{path}, line {number}: {line.strip()!r} is not `start end`, two numbers in 0..1") from None
    if not -TOLERANCE <= start <= end <= 1 + TOLERANCE:
        raise ConfigError(f"{path}, line {number}: {start:g} to {end:g} is not a slice of 0..1, start first")
    return start, end


def _check_tiling(path: Path, slices: np.ndarray, numbers: Sequence[int]) -> None:
    reached, before = 0.0, "the start"
    for rank in np.lexsort((slices[:, 1], slices[:, 0])):
        start, end = slices[rank]
        if abs(start - reached) > TOLERANCE:
            kind = "gap" if start > reached else "overlap"
            low, high = sorted((start, reached))
            raise ConfigError(
                f"{path}, line {numbers[rank]}: {kind} of {low:g} to {high:g} after {before}; the lines must tile 0..1"
            )
        reached, before = max(reached, end), f"line {numbers[rank]}"
    if reached < 1 - TOLERANCE:
        raise ConfigError(f"{path}: gap of {reached:g} to 1 after {before}; the lines must tile 0..1")
