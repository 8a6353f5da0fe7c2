"""Computes means of a round that a few bad contributions cannot carry where they like.

x_1 .. x_n are what the workers of one synchronous round have pushed, all computed on the same weights; at most f of
them are bad in whatever way. The plain mean follows a single bad one anywhere. These do not:

    trimmed   in each coordinate the mean of what is left without the f largest and the f smallest       2f < n
              Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
              Rates", ICML 2018, Definition 2
    median    in each coordinate the median                                                               2f < n
              the same, Definition 1
    krum      the x_i with the smallest sum of squared distances to its n - f - 2 nearest                 2f + 2 < n
              Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine Learning with Adversaries", NIPS 2017, Section 4
    centred   c <- c + sum((x_i - c) min(1, tau / |x_i - c|)) / n, from the result of the round before    2f < n
              Karimireddy, He, Jaggi, "Learning from History for Byzantine Robust Optimization", ICML 2021, Algorithm 2
              Ours: tau is the median of the |x_i - c|, so nobody has to know how long gradients are; three times over.

Each x_i counts alike, whatever number of samples is behind it: a weight would be one more number that a worker could
falsify. For the same reason the f largest and the f smallest claims of samples count as the next ones to them, so that
no f workers move the clock of the learning-rate schedule. When workers are lost, or rejected by the gradient check, f
shrinks to what the others allow; two are averaged. A shard sees its own coordinates. That changes nothing for trimmed
and median; krum may choose another worker on every slice, and centred judges distances slice by slice.

None of them is any use where contributions come one at a time, computed on different weights, or are summed on their
way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.core.errors import ConfigError
from paceline.core.paramserver.round import Round

NONE, TRIMMED, MEDIAN, KRUM, CENTRED = "none", "trimmed", "median", "krum", "centred"
RULES = (NONE, TRIMMED, MEDIAN, KRUM, CENTRED)
CLIPPINGS = 3
"""Iterations of centred clipping a round."""


class Numerics(Protocol):
    """Does the arithmetic that needs single numbers, which `core` cannot see; the owner of the vectors lends it."""

    def norm(self, v: Any, /) -> float:
        """Returns the Euclidean length of `v`; it is not finite if one of the numbers is not."""

    def trimmed(self, vectors: Sequence[Any], cut: int, /) -> Any:
        """Returns in each coordinate the mean of what is left without the `cut` largest and the `cut` smallest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustPolicy:
    """Chooses the rule. `f`: the maximum number of Byzantine workers."""

    rule: str = NONE
    f: int = 1

    def check(self, workers: int) -> None:
        """Raises ConfigError where so few workers cannot outvote `f` bad ones."""
        if self.rule == NONE or self.f <= _most(self.rule, workers):
            return
        needed = 2 * self.f + (3 if self.rule == KRUM else 1)
        why = f"--robust {self.rule} with --robust-f {self.f} needs {needed} workers, --workers says {workers}"
        smaller = _most(self.rule, workers)
        others = f"--robust-f {smaller}" if smaller else "--robust trimmed" if workers > 2 else "--robust none"
        raise ConfigError(f"{why}: give --workers {needed}, or {others}")

    def rounds(self, numerics: Numerics) -> Callable[[Iterable[int]], Round] | None:
        """Returns what makes the rounds of a slice, from their members; None where the plain mean is asked for."""
        if self.rule == NONE:
            return None
        return lambda members: KeptRound(members, _RULES[self.rule](self.f, numerics), self.f)

    def note(self, workers: int, length: int) -> str:
        """Returns a line for the start of a run that says what it costs; `length`: elements of the model."""
        if self.rule == NONE:
            return ""
        mib = 4 * length * workers / 2**20
        return (
            f"robust mean: {self.rule}, up to {self.f} of {workers} workers may be bad; the servers keep all "
            f"contributions of a round, {mib:.3g} MiB together"
        )


def _most(rule: str, n: int) -> int:
    """Returns how many Byzantine workers among n a rule withstands."""
    return max(0, (n - 3) // 2 if rule == KRUM else (n - 1) // 2)


class KeptRound(Round):
    """Keeps every contribution until the round is complete, as these means cannot be computed on the way."""

    __slots__ = ("_claims", "_f", "_kept", "_mean", "_usual")

    def __init__(self, members: Iterable[int], mean: Callable[[Sequence[Any]], Any], f: int = 1) -> None:
        self._mean, self._f = mean, f
        self._usual: int | None = None  # samples of the median contribution of the last round
        super().__init__(members)

    def reset(self) -> None:
        """Begins the next round, without contributions."""
        super().reset()
        self._kept: dict[int, Any] = {}
        self._claims: list[int] = []

    def add(self, rank: int, g: Any, samples: int) -> None:
        """Keeps the gradient by rank, as the means go through them in the order of ranks: the same bits in any order of
        arrival.
        """
        self._kept[rank] = g
        self._claims.append(samples)
        self.samples += samples
        self.count += 1
        self.came.add(rank)

    def mean(self) -> Any:
        """Returns the rule's mean of all contributions, in the order of ranks, so that all servers compute the same."""
        return self._mean([self._kept[rank] for rank in sorted(self._kept)])

    def counted_samples(self) -> int:
        """Returns how many samples the update counts as trained: the f largest and f smallest claims count as their
        neighbours.
        """
        claims = sorted(self._claims)
        self._usual = claims[(len(claims) - 1) // 2]
        cut = min(self._f, _most(TRIMMED, len(claims)))
        low, high = claims[cut], claims[-1 - cut]
        return sum(min(max(claim, low), high) for claim in claims)

    def claimed(self, samples: int) -> int:
        """Returns how many samples a rejected contribution counts: at most those of the last round's median."""
        return samples if self._usual is None else min(samples, self._usual)


class Trimmed:
    """The trimmed mean: in each coordinate the f largest and the f smallest do not count."""

    rule = TRIMMED

    def __init__(self, f: int, numerics: Numerics) -> None:
        self._f, self._numerics = f, numerics

    def __call__(self, x: Sequence[Any]) -> Any:
        return self._numerics.trimmed(x, self._cut(len(x)))

    def _cut(self, n: int) -> int:
        return min(self._f, _most(self.rule, n))


class Median(Trimmed):
    """The median in each coordinate; of an even number of contributions it is the mean of the two in the middle."""

    rule = MEDIAN

    def _cut(self, n: int) -> int:
        return _most(self.rule, n)


class Krum:
    """Returns one of the contributions itself: the one that is nearest to most others."""

    def __init__(self, f: int, numerics: Numerics) -> None:
        self._f, self._numerics = f, numerics

    def __call__(self, x: Sequence[Any]) -> Any:
        """Computes n (n - 1) / 2 differences of vectors and their norms: the costliest of the rules."""
        n = len(x)
        if n < 3:  # nobody can be outvoted
            return self._numerics.trimmed(x, 0)
        near = n - min(self._f, _most(KRUM, n)) - 2
        distance = {(i, j): self._squared(x[i] - x[j]) for i in range(n) for j in range(i)}
        scores = [sum(sorted(distance[max(i, j), min(i, j)] for j in range(n) if j != i)[:near]) for i in range(n)]
        return x[scores.index(min(scores))]

    def _squared(self, v: Any) -> float:
        """Returns the squared length; infinity for a vector with NaN."""
        norm = self._numerics.norm(v)
        return norm * norm if math.isfinite(norm) else math.inf


class Centred:
    """Centred clipping: contributions far from the last result move it no further than those at the median distance."""

    def __init__(self, f: int, numerics: Numerics) -> None:
        self._numerics = numerics
        self._c: Any = None  # the last result; None stands for the zero vector

    def __call__(self, x: Sequence[Any]) -> Any:
        for _ in range(CLIPPINGS):
            self._c = self._clipped(x, self._c)
        return x[0] if self._c is None else self._c

    def _clipped(self, x: Sequence[Any], c: Any) -> Any:
        """Returns the centre after one step: each contribution moves it by no more than the median distance."""
        away = [v if c is None else v - c for v in x]
        norms = [self._numerics.norm(v) for v in away]
        finite = sorted(norm if math.isfinite(norm) else math.inf for norm in norms)
        tau = finite[(len(finite) - 1) // 2]
        for v, norm in zip(away, norms, strict=True):
            if math.isfinite(norm):
                moved = v * ((min(1.0, tau / norm) if norm else 1.0) / len(x))
                c = moved if c is None else c + moved
        return c


_RULES: dict[str, Callable[[int, Numerics], Callable[[Sequence[Any]], Any]]] = {
    TRIMMED: Trimmed,
    MEDIAN: Median,
    KRUM: Krum,
    CENTRED: Centred,
}
