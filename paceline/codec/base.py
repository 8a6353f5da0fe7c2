"""A codec has a name, a source and a few parameters, and turns a vector into bytes and back; a registry knows all of
them.

    encode     r <- r + g;  bytes <- what of r is sent;  r <- r - what those bytes decode to
    decode     bytes -> vector

r is the residual: what is not sent now is sent later, so that nothing is lost for ever (error feedback). The caller
keeps it (`ResidualMemory`), one for each row of vectors that follow one another from the same sender to the same
receiver.

    @codec("2bit", summary="...", paper=Paper(...))
    class TwoBit(Codec):
        threshold: float = parameter(0.5, "what a bit stands for", low=1e-30)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import ConfigError
from paceline.core.parameter_syntax import parameters_in, with_parameters
from paceline.core.registry import Registry
from paceline.core.scheme import Paper, limits_of, parameter, types_of

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
C = TypeVar("C", bound="type[Codec]")

BYTES_MAX_PER_NUMBER = 8
"""No codec needs more bytes for a number: a longer message is refused before it is read."""


@dataclass(slots=True)
class ResidualMemory:
    """Holds what a sender remembers of one row of vectors: the residual, how many it encoded, and
    what else a codec needs.
    """

    left: Floats
    count: int = 0
    more: dict[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, length: int) -> ResidualMemory:
        """Returns an empty residual for a vector of `length` numbers."""
        return cls(np.zeros(length, np.float32))


@dataclass(frozen=True, kw_only=True)
class Codec:
    """All codecs derive from this class. Its fields are its parameters; a value out of range raises ConfigError.

    weights: what it does to weights, which are not sums over time as gradients are: it encodes them as they are, or
    encodes the difference to what the receiver is known to hold, or must not be used on them.
    gradients_only: it is of use for gradients on their way to the servers alone.
    for_means: it neither encodes nor decodes; the carrier takes means of something smaller instead.
    adds_up: torch's type in which vectors may be summed while they are encoded, where that loses no more than encoding
    does. Such a codec keeps no residual, and encodes without loss what it decoded.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[Paper | None] = None
    weights: ClassVar[Literal["as they are", "by difference", "never"]] = "by difference"
    gradients_only: ClassVar[bool] = False
    for_means: ClassVar[bool] = False
    adds_up: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, limits in limits_of(type(self)).items():
            refused = limits.refuse(getattr(self, name))
            if refused:
                raise ConfigError(f"codec {self.name}: {name} = {getattr(self, name)!r}: {refused}")

    @property
    def feedback(self) -> bool:
        """Returns True if the sender keeps a residual."""
        return True

    def check(self, momentum: float, *, local: bool) -> None:
        """Raises ConfigError, naming the way out, where a run does not go with this codec.

        `momentum` is the optimizer's; `local`: the scheme trains locally.
        """

    def size(self, length: int, nth: int = 0) -> int:
        """Returns the bytes of the `nth` vector of a row, from 0."""
        raise NotImplementedError

    def encode(self, g: Floats, memory: ResidualMemory | None = None) -> Bytes | None:
        """Returns `g`, and what `memory` has left of earlier vectors, as bytes; `memory` then has what is left now.

        Without a memory whatever is not sent is lost. The result is None when there are infinite numbers or NaN among
        them.
        """
        raise NotImplementedError

    def decode(self, data: Bytes, out: Floats) -> None:
        """Writes the vector that `data` stands for over `out`. Raises ValueError when it cannot be of that length."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """Makes numba compile everything that encoding and decoding need, by doing both once."""
        g = np.linspace(-1, 1, 64, dtype=np.float32)
        g.flags.writeable = False
        for memory in (ResidualMemory.of(len(g)), None):
            data = self.encode(g, memory)
            assert data is not None
            data.flags.writeable = False
            self.decode(data, np.empty(len(g), np.float32))

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters by name, as they were given or by default."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __str__(self) -> str:
        """Returns the codec as it is written on a command line, defaults left out."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        usual = {f.name: f.default for f in dataclasses.fields(self)}
        return with_parameters(self.name, {key: value for key, value in given.items() if value != usual[key]})


def whole(data: Bytes, size: int) -> None:
    """Raises ValueError unless `data` has `size` bytes."""
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes where {size} belong")


# ---- the registry ------------------------------------------------------------------------------------------------
_registry: Registry[Codec] = Registry("codec")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(parameter,))
def codec(name: str, *, summary: str, paper: Paper | None = None) -> Callable[[C], C]:
    """Class decorator: makes the class a frozen dataclass and enters it into the registry under `name`."""

    def enter(cls: C) -> C:
        """Enters the class in the registry. Raises ValueError for a name that is taken."""
        return _registry.enter(cls, name, summary, paper)  # type: ignore[no-any-return]

    return enter


def names() -> list[str]:
    """Returns the names of all codecs, in order."""
    return _registry.names()


def encoders() -> list[str]:
    """Returns the names of the codecs that encode vectors; the others let means be taken of something smaller."""
    return [name for name in names() if not lookup(name).for_means]


def lookup(name: str) -> type[Codec]:
    """Returns the codec class of that name. Raises ConfigError with the nearest name when there is none."""
    return _registry.lookup(name)


NONE = "none"
"""The name that stands for no codec."""
_TEXT = re.compile(r'\s*(?P<name>[\w-]+)\s*(?:\((?P<in>(?:[^()"]|"[^"]*")*)\))?\s*')


def read(text: str) -> Codec | None:
    """Returns the codec written as `2bit` or `topk(ratio=0.01)`; None for `none`. Raises ConfigError."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ConfigError(f"cannot read {text!r}; write a codec as 'topk' or 'topk(ratio=0.01)'")
    name, inside = found["name"], found["in"]
    if name == NONE:
        if inside:
            raise ConfigError(f"{NONE} has no parameters")
        return None
    cls = _registry.lookup(name, NONE)
    try:
        return cls(**parameters_in(inside or "", f"codec {name}", types_of(cls)))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
