"""Applies codecs in virtual time: every message passes the very stages of a live run, so it is as late and as lossy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.codec.pipeline.collective import AS_IT_IS, SHARES, SUMS, MeanCoder
from paceline.codec.pipeline.policy import Codecs
from paceline.codec.pipeline.stage import Stage
from paceline.core.collective.mean_server import Averaged, Part
from paceline.core.effects import Mean
from paceline.core.message import size
from paceline.core.scheme import Scheme
from paceline.core.vector import Memory
from paceline.live.protocol.pending_reply import rooms_for
from paceline.sim.kernel.processes import SimulatedProcess


class Encoding:
    """Encodes and decodes messages in transit. Each party has its stage, with its residuals, by its name."""

    def __init__(
        self, codecs: Codecs, scheme: Scheme, memory: Memory, *, tensors: Sequence[int], slices: Sequence[slice]
    ) -> None:
        """`tensors`: lengths of the model's tensors, as far as they are known; `slices`: which server has what."""
        self._codecs, self._scheme, self._memory = codecs, scheme, memory
        self._tensors, self._slices = tensors, slices
        self._stages: dict[str, Stage] = {}

    def __call__(self, src: SimulatedProcess, dst: SimulatedProcess, message: Any) -> tuple[Any, int]:
        """Returns `message` as it arrives, and the bytes of vectors that travel."""
        from_server = src.name.startswith("server")
        sent = self._stage(src).outgoing(dst.name, src.me if from_server else dst.me, message)
        if sent is message:
            return message, size(message)
        return self._stage(dst).incoming(src.name, sent, self._room, from_server=from_server), size(sent)

    def _stage(self, party: SimulatedProcess) -> Stage:
        """Returns the stage of a party. A worker that rejoins has its name, and so goes on with the residuals."""
        if party.name not in self._stages:
            of_server = party.name.startswith("server")
            tensors = () if of_server else self._tensors
            self._stages[party.name] = self._codecs.stage(
                self._memory, self._scheme, of_server=of_server, tensors=tensors, slices=self._slices
            )
        return self._stages[party.name]

    def _room(self, lengths: Sequence[int], there: Sequence[Any]) -> list[Any]:
        """Returns vectors into which a message is decoded."""
        return rooms_for(lengths, there, self._memory)


class MeanEncoding:
    """Encodes means that workers carry themselves. Each worker has its coder, with its residuals.

    Where a codec adds up, every vector is rounded once and the mean once; in a live run the partial sums are rounded
    too.
    """

    def __init__(self, coders: Sequence[MeanCoder]) -> None:
        """`coders` are by rank."""
        self._coders = coders
        self._sum: tuple[Averaged, Averaged] | None = None  # the last mean, and the same rounded

    def handed_in(self, rank: int, part: Part) -> tuple[Part, int, bool]:
        """Returns a part as the others decode it, its bytes, and whether everybody gets all parts instead of
        their sum."""
        coder = self._coders[rank]
        coding = coder.coding(_effect(part))
        if coding == AS_IT_IS or not part.weight:
            return part, size(part) if coding != SHARES else 0, coding == SHARES
        encoded = coder.encode(part.v, part.series)
        return replace(part, v=coder.decode(encoded)), encoded.nbytes, coding == SHARES

    def handed_out(self, mean: Averaged) -> Averaged:
        """Returns the mean as members get it: rounded to the codec's type where it is added up in that."""
        coder = self._coders[0]
        if coder.coding(_effect(mean)) != SUMS:
            return mean
        if self._sum is None or self._sum[0] is not mean:  # all members get the same
            self._sum = mean, replace(mean, v=coder.rounded(mean.v))
        return self._sum[1]


def _effect(of: Part | Averaged) -> Mean:
    """Returns the effect that a part or a result belongs to, which a coder judges by weight, length and series."""
    return Mean(of.v, (), "", of.weight, of.series)
