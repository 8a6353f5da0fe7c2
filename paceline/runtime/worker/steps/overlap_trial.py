"""Measures whether overlap makes the steps of a worker shorter: the first steps are made both ways, in turn.

    steps                what they are for
    WARM_UP              nothing: the first steps load code, allocate memory and open connections
    BLOCK, BLOCK         a pair: steps without overlap, steps with it; every second pair begins with overlap, so that
                         a machine that becomes slower or faster favours neither
    ...                  up to PAIRS pairs
    all others           the faster way

The first step of a block is not counted, since a part of its exchange was begun the other way. A block counts with the
median of its other steps, and a pair with the ratio of its blocks. So one slow step is nothing, and a stall of several
steps spoils one pair. Overlap wins if its steps are shorter in all pairs but SPOILED, and shorter by GAIN in the median
pair. The trial ends early once overlap cannot win any more.

The decision follows from the seconds alone; there is no clock here. Each worker decides for itself: overlap changes
when its messages leave, not what is in them.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

WARM_UP = 4
"""Steps before the first pair."""
BLOCK = 4
"""Steps of one block, the first of which is not counted."""
PAIRS = 6
"""The most pairs of blocks."""
SPOILED = 1
"""Pairs in which overlap may be slower and win nevertheless."""
GAIN = 0.03
"""Share of a step that overlap has to save in the median pair."""
STEPS_MAX = WARM_UP + 2 * BLOCK * PAIRS
"""Steps of the longest trial."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Says which way is faster, and the median seconds of the counted steps of each way."""

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
        self._steps = 0  # that were made
        self._block: list[float] = []  # seconds of the counted steps of the present block
        self._medians: dict[bool, list[float]] = {False: [], True: []}  # one for each block
        self._seconds: dict[bool, list[float]] = {False: [], True: []}  # of all counted steps
        self.result: TrialResult | None = None

    @property
    def overlaps(self) -> bool:
        """Returns True if the next step is to overlap."""
        if self.result is not None:
            return self.result.overlaps
        block, _ = divmod(self._steps - WARM_UP, BLOCK)
        return block >= 0 and block % 4 in (1, 2)

    def stepped(self, seconds: float) -> None:
        """Takes how long the next step took, from the end of the step before. Does nothing once there is a result."""
        if self.result is not None:
            return
        overlapped, at = self.overlaps, self._steps - WARM_UP
        self._steps += 1
        if at < 0:
            return
        if at % BLOCK:
            self._block.append(seconds)
            self._seconds[overlapped].append(seconds)
        if at % BLOCK == BLOCK - 1:
            self._medians[overlapped].append(statistics.median(self._block))
            self._block.clear()
            if at // BLOCK % 2:
                self._judge()

    def _judge(self) -> None:
        """Ends the trial after its last pair, or when overlap cannot win any more."""
        ratios = [on / off if off else 1.0 for on, off in zip(self._medians[True], self._medians[False], strict=True)]
        slower = sum(ratio >= 1.0 for ratio in ratios)
        if slower <= SPOILED and len(ratios) < PAIRS:
            return
        wins = slower <= SPOILED and statistics.median(ratios) <= 1.0 - GAIN
        with_s, without_s = (statistics.median(self._seconds[way]) for way in (True, False))
        self.result = TrialResult(wins, with_s, without_s, len(ratios))
