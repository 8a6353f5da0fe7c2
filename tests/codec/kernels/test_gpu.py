"""The kernels for GPUs make the bytes and leave the residuals that the loops on the host do.

Without a GPU they run in Triton's interpreter, which says what they compute and nothing about how fast.
"""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from torch import Tensor

from paceline.codec import Codec, ResidualMemory, read
from paceline.codec.pipeline.stage import Stage
from paceline.core.message import INCREMENT
from paceline.core.paramserver.gated_server import Push
from paceline.engine.vectors.flat import Flat, FlatMemory
from tests.codec.algorithms.test_twobit import GOLDEN

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are defined
pytest.importorskip("triton", reason="pip install triton: the kernels for GPUs are not tested without")

from paceline.codec.kernels import gpu  # noqa: E402

CODECS = ("2bit(threshold=0.5)", "1bit(threshold=0.25)", "1bit(threshold=-0.5)", "sign(block=1032)", "int8(block=300)")
LENGTHS = (1, 17, 1031, 5000)


def codec_of(text: str) -> Codec:
    codec = read(text)
    assert codec is not None
    return codec


def gradient(length: int, seed: int) -> np.ndarray:
    """Whole quarters, of which sums and means are exact in any order."""
    return np.random.default_rng(seed).integers(-8, 9, length).astype(np.float32) / 4


def there(g: np.ndarray) -> Tensor:
    return torch.tensor(g, device=DEVICE)


@pytest.mark.parametrize(
    ("text", "golden"),
    [
        ("2bit(threshold=0.5)", ["f8 e2 00 03 c0 00 00 00", "f8 ee 3f 0b c0 00 00 00"]),
        ("1bit(threshold=0)", ["da 75 80 00"]),
    ],
)
def test_a_gpu_makes_the_bytes_that_mxnet_makes(text: str, golden: list[str]) -> None:
    r = there(np.zeros_like(GOLDEN))
    for data in golden:
        made = gpu.encode(codec_of(text), there(GOLDEN), r)
        assert made is not None
        assert made.tobytes().hex(" ") == data


@pytest.mark.parametrize("text", CODECS)
@pytest.mark.parametrize("length", LENGTHS)
def test_bytes_residuals_and_what_is_decoded_are_those_of_the_host(text: str, length: int) -> None:
    codec, memory, r = codec_of(text), ResidualMemory.of(length), there(np.zeros(length, np.float32))
    for seed in range(3):
        g = gradient(length, seed)
        data, made = codec.encode(g, memory), gpu.encode(codec, there(g), r)
        assert data is not None
        assert made is not None
        assert made.tobytes() == data.tobytes()
        assert r.cpu().numpy().tobytes() == memory.left.tobytes()
    out, decoded = np.empty(length, np.float32), torch.empty(length, device=DEVICE)
    codec.decode(data, out)
    gpu.decode(codec, data, decoded)
    assert decoded.cpu().numpy().tobytes() == out.tobytes()


@pytest.mark.parametrize("text", CODECS)
def test_what_was_decoded_and_what_is_left_is_the_gradient(text: str) -> None:
    codec, g = codec_of(text), np.random.default_rng(7).standard_normal(2000).astype(np.float32)
    r, out = there(np.zeros_like(g)), torch.empty(len(g), device=DEVICE)
    data = gpu.encode(codec, there(g), r)
    assert data is not None
    gpu.decode(codec, data, out)
    assert torch.allclose(out + r, there(g), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
@pytest.mark.parametrize("text", CODECS)
@pytest.mark.parametrize("wild", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_not_encoded(text: str, wild: float) -> None:
    g = gradient(1500, 0)
    g[1200] = wild
    assert gpu.encode(codec_of(text), there(g), there(np.zeros_like(g))) is None


@pytest.mark.parametrize("text", CODECS)
def test_bytes_that_cannot_be_of_that_length_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bytes where"):
        gpu.decode(codec_of(text), np.zeros(3, np.uint8), torch.empty(100, device=DEVICE))


# ---- chosen by itself --------------------------------------------------------------------------------------------
class OnGpu(Flat):
    """A vector that says it lies on a GPU, where there is none."""

    __slots__ = ()

    @property
    def on_gpu(self) -> Tensor | None:
        return self.value()


def stage(text: str, small: tuple[slice, ...] = ()) -> Stage:
    return Stage(FlatMemory(), lambda _: INCREMENT, up=codec_of(text), down=None, small={0: small} if small else None)


def pushed(of: Stage, v: Flat) -> bytes:
    return bytes(of.outgoing("server 0", 0, Push(g=v, clock=1, samples=8)).g.data)


@pytest.mark.parametrize("small", [(), (slice(3, 9), slice(400, 410))])
def test_a_gradient_on_a_gpu_is_encoded_there_with_the_same_bytes(
    small: tuple[slice, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    encode = gpu.encode
    monkeypatch.setattr(gpu, "encode", lambda codec, g, r: seen.append(len(g)) or encode(codec, g, r))
    host, device = stage("2bit(threshold=0.5)", small), stage("2bit(threshold=0.5)", small)
    for seed in range(3):
        g = gradient(500, seed)
        assert pushed(device, OnGpu(there(g))) == pushed(host, Flat(torch.tensor(g)))
    assert seen == [500, 500, 500]
    ((name, left),) = device.residuals().items()
    assert left.left.tobytes() == host.residuals()[name].left.tobytes()


def test_a_residual_of_an_earlier_life_is_taken_up_on_the_gpu() -> None:
    before, after, host = stage("int8"), stage("int8"), stage("int8")
    first, second = (np.random.default_rng(seed).standard_normal(300).astype(np.float32) for seed in (1, 2))
    assert pushed(before, OnGpu(there(first))) == pushed(host, Flat(torch.tensor(first)))
    after.recall(before.residuals())
    assert pushed(after, OnGpu(there(second))) == pushed(host, Flat(torch.tensor(second)))
