"""Measures whether overlap makes the steps of a worker shorter: some of its first steps are made both ways, in turn.

    steps                what they are for
    WARM_UP              nothing: the first steps load code, allocate memory and open connections, and others still
                         start; at least so many steps, and WARM_UP_S seconds of them
    BLOCK, BLOCK         a pair: steps without overlap, steps with it; every second pair begins with overlap, so that
                         a machine that becomes slower or faster favours neither
    ...                  up to PAIRS pairs
    all others           the faster way

The first step of a block is not counted, since a part of its exchange was begun the other way. A block counts with the
mean of its other steps, and a pair with the ratio of its blocks. A mean, as short and long steps alternate where
exchanges overlap, and the median of such is no step's length. A stall spoils one pair. Overlap wins if its steps are
shorter in all pairs but SPOILED, and shorter by GAIN in the median pair. The trial ends early once overlap cannot win
any more.

The decision follows from the seconds alone; there is no clock here. Each worker decides for itself: overlap changes
when its messages leave, not what is in them.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

WARM_UP = 4
"""Steps before the first pair, at least."""
WARM_UP_S = 1.0
"""Seconds of the steps before the first pair, at least."""
BLOCK = 5
"""Steps of one block, the first of which is not counted."""
PAIRS = 5
"""The most pairs of blocks."""
SPOILED = 1
"""Pairs in which overlap may be slower and win nevertheless."""
GAIN = 0.03
"""Share of a step that overlap has to save in the median pair."""
TRIED_MAX = 2 * BLOCK * PAIRS
"""Steps of the longest trial, without those before it."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Says which way is faster, and the median seconds of a step of each way, of blocks. pairs: that were measured."""

    overlaps: bool
    with_s: float
    without_s: float
    pairs: int

    @property
    def reason(self) -> str:
        """Returns the measured times in words."""
        pairs = f"{self.pairs} pair{'s' * (self.pairs != 1)} of {BLOCK} steps each way"
        return f"a step takes {self.with_s * 1e3:.3g} ms with overlap, {self.without_s * 1e3:.3g} without ({pairs})"


class OverlapTrial:
    """Says which steps overlap while the trial lasts, and takes their seconds."""

    def __init__(self) -> None:
        self._warm_up, self._warm_up_s = 0, 0.0  # steps and seconds before the first pair
        self._tried = 0  # steps since then
        self._block_s = 0.0  # seconds of the counted steps of the present block
        self._means: dict[bool, list[float]] = {False: [], True: []}  # seconds of a step, one for each block
        self.result: TrialResult | None = None

    @property
    def overlaps(self) -> bool:
        """Returns True if the next step is to overlap."""
        if self.result is not None:
            return self.result.overlaps
        return self._tried // BLOCK % 4 in (1, 2)

    def stepped(self, seconds: float) -> None:
        """Takes how long the next step took, from the end of the step before. Does nothing once there is a result."""
        if self.result is not None:
            return
        if self._warm_up < WARM_UP or self._warm_up_s < WARM_UP_S:
            self._warm_up += 1
            self._warm_up_s += seconds
            return
        overlapped, at = self.overlaps, self._tried % BLOCK
        self._tried += 1
        self._block_s = self._block_s + seconds if at else 0.0
        if at == BLOCK - 1:
            self._means[overlapped].append(self._block_s / (BLOCK - 1))
            if self._tried % (2 * BLOCK) == 0:
                self._judge()

    def _judge(self) -> None:
        """Ends the trial after its last pair, or when overlap cannot win any more."""
        ratios = [on / off if off else 1.0 for on, off in zip(self._means[True], self._means[False], strict=True)]
        slower = sum(ratio >= 1.0 for ratio in ratios)
        if slower <= SPOILED and len(ratios) < PAIRS:
            return
        wins = slower <= SPOILED and statistics.median(ratios) <= 1.0 - GAIN
        with_s, without_s = (statistics.median(self._means[way]) for way in (True, False))
        self.result = TrialResult(wins, with_s, without_s, len(ratios))
