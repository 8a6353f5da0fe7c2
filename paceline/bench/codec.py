"""How fast codecs encode and decode on one core, against the bandwidth of memory.

A gradient of random numbers is encoded with its residual and decoded, as a worker and a server do, and decoded and
added to the weights. The limit is `r += g` in torch: it reads two vectors and writes one, as an encoder with a residual
must at least. A decoder that writes once may take less.

On a GPU (benchmarks/codecs.py --device cuda) it is the same with the kernels that encode there; the seconds are until
the bytes are on the host, and the numbers on the GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from paceline.bench.result import Figure, Note, say_nothing, timed
from paceline.codec import Codec, ResidualMemory, read
from paceline.codec.base import Bytes

LIMIT = "r += g"
"""What the figures are compared with, as the table names it."""
PARTS = ("encode", "decode", "decode and add")
"""What is measured of each codec."""
DEFAULTS = {"2bit": "2bit(threshold=0.3)", "dgc": "dgc(warmup=0)"}
"""Of those whose own defaults send nearly nothing, or nearly everything, of the first gradients."""


def measure(names: Sequence[str], length: int, rounds: int, note: Note = say_nothing) -> Iterator[Figure]:
    """Yields three figures for each codec: to encode, to decode, to decode and add. Raises ConfigError for an unknown
    one.
    """
    torch.set_num_threads(1)
    g = np.random.default_rng(1).standard_normal(length).astype(np.float32)
    for name in names:
        codec = read(DEFAULTS.get(name, name))
        if codec is not None:
            note(f"{name}: {rounds} rounds")
            yield from _of(name, codec, g, rounds)


def _of(name: str, codec: Codec, g: np.ndarray, rounds: int) -> Iterator[Figure]:
    """Yields the figures of one codec for the gradient `g`, float32 [n].

    The limit is measured in the same rounds: the speed of memory changes with what else the machine does.
    """
    memory, out = ResidualMemory.of(len(g)), np.empty_like(g)
    w, r = torch.zeros(len(g)), torch.zeros(len(g))
    gradient, decoded = torch.from_numpy(g), torch.from_numpy(out)
    data = codec.encode(g, memory)
    assert data is not None
    codec.decode(data, out)  # compiled by now

    def decode_and_add() -> None:
        codec.decode(data, out)
        w.add_(decoded, alpha=-0.1)

    parts: dict[str, Callable[[], object]] = {
        LIMIT: lambda: r.add_(gradient),
        "encode": lambda: codec.encode(g, memory),
        "decode": lambda: codec.decode(data, out),
        "decode and add": decode_and_add,
    }
    yield from _figures(name, codec, g, parts, rounds)


def measure_on_gpu(names: Sequence[str], length: int, rounds: int) -> Iterator[Figure]:
    """Does the same where the gradient lies on a GPU, for the codecs that have kernels for it.

    Raises ImportError without Triton, whose kernels they are.
    """
    from paceline.codec.kernels import gpu

    numbers = np.random.default_rng(1).standard_normal(length).astype(np.float32)
    g = torch.tensor(numbers, device="cuda")
    for name in names:
        codec = read(DEFAULTS.get(name, name))
        if codec is None or name not in gpu.CODECS:
            continue
        left, out, w, r = (torch.zeros_like(g) for _ in range(4))
        data = gpu.encode(codec, g, left)
        assert data is not None
        gpu.decode(codec, data, out)  # compiled by now

        def add(codec: Codec = codec, data: Bytes = data, out: Tensor = out, w: Tensor = w) -> None:
            gpu.decode(codec, data, out)
            w.add_(out, alpha=-0.1)

        acts: dict[str, Callable[[], object]] = {
            LIMIT: functools.partial(r.add_, g),
            "encode": functools.partial(gpu.encode, codec, g, left),
            "decode": functools.partial(gpu.decode, codec, data, out),
            "decode and add": add,
        }
        yield from _figures(name, codec, numbers, {part: _done(act) for part, act in acts.items()}, rounds)


def _done(act: Callable[[], object]) -> Callable[[], object]:
    """Returns a function that calls `act` and waits until the GPU has done what that gave it to do.

    Kernels are only queued by a call; without the wait the time of the queue would be measured.
    """

    def done() -> None:
        act()
        torch.accelerator.synchronize()

    return done


def _figures(
    name: str, codec: Codec, g: np.ndarray, parts: Mapping[str, Callable[[], object]], rounds: int
) -> Iterator[Figure]:
    """Yields a figure for each part, against the limit; all parts take turns, `rounds` times."""
    took: dict[str, list[float]] = {part: [] for part in parts}
    for _ in range(rounds):
        for part, act in parts.items():
            took[part].append(timed(act))
    smaller = g.nbytes / codec.size(len(g))
    for part in PARTS:
        yield Figure.of(
            f"{name}: {part}", LIMIT, g.nbytes, took[part], took[LIMIT], codec=name, smaller=smaller, rounds=rounds
        )
