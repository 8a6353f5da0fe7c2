"""Says which codec goes with which scheme, and makes the stage of a party that takes part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.codec.algorithms.powersgd import PowerSGD
from paceline.codec.base import NONE, Codec, read
from paceline.codec.pipeline.collective import MeanCoder
from paceline.codec.pipeline.stage import Stage
from paceline.codec.small_tensors import parts_of
from paceline.core.errors import ConfigError
from paceline.core.message import STATE, Nature
from paceline.core.scheme import Scheme
from paceline.core.vector import Memory

EXACT_BELOW = 1024
"""Vectors of fewer numbers travel as they are: their codes would save next to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Codecs:
    """Names the codecs of a run: `up` for what workers send, `down` for what servers send.

    exact_below: vectors, and tensors within a gradient, of fewer numbers travel as they are.
    """

    up: str = NONE
    down: str = NONE
    exact_below: int = EXACT_BELOW

    @property
    def any(self) -> bool:
        """Returns True if anything is encoded, in either direction."""
        return read(self.up) is not None or read(self.down) is not None

    @property
    def in_messages(self) -> bool:
        """Returns True if vectors of messages are encoded."""
        return read(self.down) is not None or (read(self.up) is not None and not self.low_rank)

    @property
    def low_rank(self) -> int:
        """Returns the columns of the factors that means are made of; 0 where they are not."""
        up = read(self.up)
        return up.rank if isinstance(up, PowerSGD) else 0

    @property
    def gathers(self) -> bool:
        """Returns True if workers that carry means themselves pass encoded vectors on to all."""
        up = read(self.up)
        return up is not None and not up.for_means and not up.adds_up

    def bytes_of_mean(self, length: int) -> int:
        """Returns about what a worker hands in to a mean of `length` numbers that workers carry."""
        up = read(self.up)
        return 4 * length if up is None or up.for_means or length < self.exact_below else up.size(length)

    def check(self, scheme: Scheme, servers: int, momentum: float, mean: str = "auto") -> None:
        """Raises ConfigError, naming the way out, for a codec that is unknown or does not go with the scheme.

        `momentum` is the optimizer's; `mean`: who is asked to carry means.
        """
        up, down = read(self.up), read(self.down)
        ups, downs = scheme.natures(servers)
        if isinstance(up, PowerSGD):
            _check_means_only(up, scheme, servers)
        elif up is not None:
            up.check(momentum, local=scheme.trains_locally)
            _check_natures("--codec", up, scheme, ups)
        # Down first by what servers send at all, then by what the codec is for, then by who carries the means.
        if down is not None and not downs:
            raise ConfigError(f"--codec-down {down}: no server sends anything here; leave it out")
        if down is not None:
            if down.gradients_only or down.for_means:
                raise ConfigError(f"--codec-down {down}: {down.name} is for what workers send; give --codec {down}")
            _check_natures("--codec-down", down, scheme, downs)
        if down is not None and scheme.server(servers) is None and (not servers or mean not in ("auto", "servers")):
            raise ConfigError(
                f"--codec-down {down}: the workers carry the means of {scheme.name} themselves, and no server sends "
                "anything; leave it out, or give --servers 1 or more and leave out --allreduce"
            )

    def stage(
        self,
        memory: Memory,
        scheme: Scheme,
        *,
        of_server: bool = False,
        tensors: Sequence[int] = (),
        slices: Sequence[slice] = (),
    ) -> Stage:
        """Returns the stage of one party.

        A worker knows the model's `tensors` (lengths), and how it is cut into `slices`.
        """
        return Stage(
            memory,
            scheme.nature,
            up=None if self.low_rank else read(self.up),
            down=read(self.down),
            of_server=of_server,
            exact_below=self.exact_below,
            small=parts_of(tensors, slices, self.exact_below),
        )

    def coder(self, memory: Memory, scheme: Scheme, tensors: Sequence[int]) -> MeanCoder | None:
        """Returns what encodes the means that a worker carries with others; None where they are exact. `tensors`: as
        for `stage`.
        """
        up, length = read(self.up), sum(tensors)
        if up is None or up.for_means:
            return None
        small = parts_of(tensors, (slice(0, length),), self.exact_below).get(0, ())
        return MeanCoder(memory, scheme.nature, up, exact_below=self.exact_below, length=length, small=small)

    def warm_up(self) -> None:
        """Makes numba compile everything that the codecs need, so that no party waits for that during training."""
        for codec in filter(None, (read(self.up), read(self.down))):
            codec.warm_up()


def _check_means_only(codec: PowerSGD, scheme: Scheme, servers: int) -> None:
    """Raises ConfigError where a scheme takes no means over workers, which PowerSGD needs."""
    if scheme.server(servers) is not None or scheme.needs_peers or not scheme.uses_mean(servers):
        without = "; or --servers 0" if servers and not scheme.needs_peers and scheme.uses_mean(0) else ""
        raise ConfigError(
            f"--codec {codec}: {codec.name} factors means over the workers, and {scheme.name} takes none here; take "
            f"topk or sign{without}"
        )


def _check_natures(flag: str, codec: Codec, scheme: Scheme, natures: set[Nature]) -> None:
    """Raises ConfigError where weights travel, and the codec is for sums such as gradients."""
    if STATE in natures and codec.weights == "never":
        raise ConfigError(
            f"{flag} {codec}: weights travel that way under {scheme.name}, and {codec.name} is for sums such as "
            f"gradients; take {' or '.join(_for_weights())}"
        )


def _for_weights() -> Sequence[str]:
    """Returns codecs that an error names as the way out, where weights travel."""
    return ("fp16", "bf16", "int8", "topk", "sign")
