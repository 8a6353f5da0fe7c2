"""Mixed precision: 16 bits on the way, 32 in what comes of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.mixed_precision import Precision, Scale

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
X = torch.randn(16, 5, generator=torch.Generator().manual_seed(1))


def small() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))


def gradient(name: str, device: str = "cpu") -> tuple[Tensor, list[torch.dtype]]:
    """The gradient as it is exchanged, and the types of what the layers gave."""
    module, seen = small(), list[torch.dtype]()
    flat = FlatModel(module, device)
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda _layer, _x, y: seen.append(y.dtype))
    precision = Precision(name, module, device)
    flat.zero_grad()
    precision.backward(lambda x: module(x).float().square().mean(), X.to(device))
    g = flat.gradient()
    assert g.value().dtype == flat.weights().value().dtype == torch.float32
    return g.value().cpu(), seen


def test_fp32_is_plain_torch() -> None:
    module = small()
    module(X).square().mean().backward()
    got, seen = gradient("fp32")
    assert torch.equal(got, torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]))
    assert set(seen) == {torch.float32}


def test_bf16_computes_in_16_bits_and_leaves_32() -> None:
    exact, _ = gradient("fp32")
    got, seen = gradient("bf16")
    assert set(seen) == {torch.bfloat16}
    assert not torch.equal(got, exact)
    torch.testing.assert_close(got, exact, rtol=0.1, atol=0.05)


def test_fp16_without_a_gpu_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="take bf16"):
        Precision("fp16", small(), "cpu")


@pytest.mark.cuda
@needs_cuda
def test_fp16_on_a_gpu_gives_the_gradient() -> None:
    got, seen = gradient("fp16", "cuda")
    assert set(seen) == {torch.float16}
    torch.testing.assert_close(got, gradient("fp32")[0], rtol=0.1, atol=0.05)


# ---- the scale; nothing in it asks for a GPU -------------------------------------------------------------------------
def backward(scale: Scale, loss: torch.Tensor) -> bool:
    scale.scaled(loss).backward()
    return scale.unscale()


def test_the_scale_leaves_the_gradient_as_it_is() -> None:
    module = small()
    scale = Scale(module, "cpu")
    assert backward(scale, module(X).square().mean())
    got = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(got, gradient("fp32")[0])


def test_an_overflow_halves_the_scale_and_is_to_be_repeated() -> None:
    module = small()
    scale = Scale(module, "cpu", start=2.0**126)
    tries = 1
    while not backward(scale, module(X).square().mean() * 1e3):
        assert all(not p.grad.any() for p in module.parameters() if p.grad is not None)
        tries += 1
    assert scale.now == 2.0**126 / 2 ** (tries - 1)
    assert tries > 1
    got = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(got, gradient("fp32")[0] * 1e3, rtol=1e-4, atol=1e-4)


def test_a_model_that_has_diverged_is_not_repeated_for_ever() -> None:
    module = small()
    scale = Scale(module, "cpu")
    tries = 0
    while not backward(scale, module(X).mean() * float("nan")):
        tries += 1
    assert tries == 17  # 2**16 down to 1
