"""Applies codecs where workers carry means themselves, so that nobody in the middle decodes, adds and encodes again.

The codec decides between two ways:

    SUMS     fp16 and bf16: what travels is the partial sum, rounded for each hop and added in float32. Rounding what is
             rounded already changes nothing, so all end with the same bits.
    SHARES   all that keep a residual, or whose bytes cannot be made again from what they decode to: each worker encodes
             its vector once and everybody decodes and adds all of them, in the same order. What was left out stays in
             the residual of whoever left it out, as with servers. n - 1 encoded vectors come to each of n workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from paceline.codec.base import Codec
from paceline.codec.encoded import WHOLE, Encoded
from paceline.codec.pipeline.stage import Stage
from paceline.codec.small_tensors import Parts
from paceline.core.collective.mean_server import Part
from paceline.core.effects import EVERY_BIT, Mean
from paceline.core.message import EXACT, Nature
from paceline.core.vector import Memory

Coding = Literal["exact", "sums", "shares"]
AS_IT_IS: Coding = "exact"
SUMS: Coding = "sums"
SHARES: Coding = "shares"
CODINGS = (AS_IT_IS, SUMS, SHARES)

_WORKERS = "workers"  # all of them receive the same, so one residual serves all
_MODEL, _OTHER = 0, 1  # vectors as long as the model have small tensors, and a residual of their own; others do not


class MeanCoder:
    """Encodes and decodes the means of one worker, on one thread."""

    def __init__(
        self,
        memory: Memory,
        nature: Callable[[type], Nature],
        codec: Codec,
        *,
        exact_below: int = 0,
        length: int,
        small: Parts = (),
    ) -> None:
        """`length` is that of the model, whose `small` parts travel as they are; longer vectors are exact."""
        self.codec, self.length, self._memory, self._nature = codec, length, memory, nature
        self._exact_below = max(1, exact_below)
        self._stage = Stage(memory, nature, up=codec, down=None, small={_MODEL: small})

    def coding(self, mean: Mean) -> Coding:
        """Returns how `mean` travels, which is the same for all its members, whatever numbers each of them has."""
        if (
            mean.series == EVERY_BIT
            or not self._exact_below <= len(mean.v) <= self.length
            or self._nature(Part) == EXACT
        ):
            return AS_IT_IS
        return SUMS if self.codec.adds_up else SHARES

    def encode(self, v: Any, series: int = 0) -> Encoded:
        """Encodes `v`, with what is left of earlier vectors of that series of means."""
        kind = _MODEL if len(v) == self.length else _OTHER
        encoded = self._stage.outgoing(_WORKERS, kind, _part(v, series)).v
        if isinstance(encoded, Encoded):
            return encoded
        return Encoded(WHOLE, len(v), self._memory.bytes_of(v))  # a vector with numbers that are not finite

    def decode(self, encoded: Encoded) -> Any:
        """Returns the vector. Raises ProtocolError for bytes that the codec does not make."""
        return self._stage.incoming(_WORKERS, _part(encoded), self._room, from_server=False).v

    def rounded(self, v: Any) -> Any:
        """Returns `v` as the others will decode it."""
        return self.decode(self.encode(v))

    def _room(self, lengths: Sequence[int], there: Sequence[Any]) -> list[Any]:
        """Returns a vector for each length, of those that are there already or of new memory."""
        return [self._memory.empty(length) if v is None else v for length, v in zip(lengths, there, strict=True)]


def _part(v: Any, series: int = 0) -> Part:
    """Returns a mean's message as a worker would send it, by which the stage knows the vector's nature and row."""
    return Part(v=v, among=(), tag="", weight=1.0, series=series)
