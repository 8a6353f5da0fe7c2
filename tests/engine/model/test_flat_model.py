"""A FlatModel is the user's module and one vector at the same time."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def small() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3, bias=False))


def backward(module: nn.Module, seed: int = 0, device: str = "cpu") -> None:
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed)).to(device)
    module(x).square().mean().backward()


def gradient_of(module: nn.Module, seed: int = 0) -> torch.Tensor:
    """What plain torch finds."""
    plain = copy.deepcopy(module)
    plain.zero_grad()
    backward(plain, seed)
    found = [p.grad if p.grad is not None else torch.zeros_like(p) for p in plain.parameters()]
    return torch.cat([g.flatten() for g in found])


def test_parameters_and_gradients_are_views_of_two_buffers() -> None:
    module = small()
    before = torch.cat([p.detach().flatten() for p in module.parameters()])
    model = FlatModel(module)
    assert len(model) == before.numel() == 5 * 7 + 7 + 7 + 7 + 7 * 3
    assert torch.equal(model.weights().value(), before)
    assert torch.equal(model.flat_parameter.detach(), before)
    at = model.flat_parameter.data_ptr()
    for p in module.parameters():
        assert p.data_ptr() == at
        assert p.grad is not None
        at += p.nbytes


def test_load_then_weights_is_the_same_value_without_a_copy() -> None:
    model = FlatModel(small())
    w = Flat.copy_of(torch.randn(len(model))) * 0.5
    model.load(w)
    assert model.weights() is w
    assert torch.equal(model.flat_parameter.detach(), w.value())
    with pytest.raises(ValueError, match="3 weights for a model of"):
        model.load(Flat.copy_of(torch.zeros(3)))


def test_weights_are_a_value_that_later_training_leaves_alone() -> None:
    module = small()
    model = FlatModel(module)
    before = model.weights()
    then = before.value().clone()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    backward(module)
    optimizer.step()
    assert torch.equal(before.value(), then)
    after = model.weights()
    assert not torch.equal(after.value(), then)
    model.load(after)
    model.load(before)
    assert torch.equal(model.flat_parameter.detach(), then)


@pytest.mark.parametrize("touch", ["parameter", "flat", "told"])
def test_loading_again_after_a_change_does_load(touch: str) -> None:
    module = small()
    model = FlatModel(module)
    w = model.weights()
    with torch.no_grad():
        if touch == "parameter":
            next(module.parameters()).add_(1)
        elif touch == "flat":
            model.flat_parameter.add_(1)
        else:
            next(module.parameters()).data.add_(1)
            model.touched()
    model.load(w)
    assert torch.equal(model.flat_parameter.detach(), w.value())


def test_tied_parameters_appear_once_and_stay_tied() -> None:
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    module[1].weight = module[0].weight
    model = FlatModel(module)
    assert model.layout() == [("0.weight", (4, 4))]
    model.load(Flat.copy_of(torch.arange(16.0)))
    assert torch.equal(module[1].weight.detach().flatten(), torch.arange(16.0))
    assert "1.weight" in module.state_dict()


def test_only_what_requires_a_gradient_and_is_in_the_optimizer_is_in_the_vector() -> None:
    module = small()
    for p in module[0].parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.SGD([*module[0].parameters(), *module[3].parameters()], lr=0.1)
    wanted = gradient_of(module)
    places = [p.data_ptr() for p in module.parameters()]
    model = FlatModel(module, optimizer=optimizer)
    assert model.layout() == [("3.weight", (3, 7))]
    model.zero_grad()
    backward(module)
    torch.testing.assert_close(model.gradient().value(), wanted[-21:])
    model.load(Flat.copy_of(torch.zeros(21)))
    assert [p.data_ptr() for p in module.parameters()][:-1] == places[:-1]
    assert FlatModel(small(), optimizer=None).layout()[0] == ("0.weight", (7, 5))


def test_the_fingerprint_tells_models_apart() -> None:
    assert FlatModel(small()).fingerprint() == FlatModel(small()).fingerprint()
    assert FlatModel(nn.Linear(2, 3)).fingerprint() != FlatModel(nn.Linear(3, 2)).fingerprint()


def test_a_state_dict_loads_into_a_plain_module_and_saves_no_more_than_it_holds(tmp_path: Path) -> None:
    module, plain = small(), small()
    model = FlatModel(module)
    model.load(Flat.copy_of(torch.randn(len(model))))
    state = module.state_dict()
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in state.values())
    plain.load_state_dict(state)
    assert torch.equal(torch.cat([p.flatten() for p in plain.parameters()]), model.weights().value())

    save_file(state, tmp_path / "model.safetensors")  # refuses tensors that share memory
    model.load(Flat.copy_of(torch.zeros(len(model))))
    module.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(torch.cat([p.flatten() for p in plain.parameters()]), model.weights().value())
    file = io.BytesIO()
    torch.save(copy.deepcopy(module), file)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), "1.weight is torch.float64"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")), "1.weight has no numbers yet"),
        (nn.Sequential(nn.LazyLinear(2)), "0.weight has no numbers yet"),
        (nn.ReLU(), "no parameters"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_what_cannot_be_flattened_is_refused_by_name(module: nn.Module, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refusal:
        FlatModel(module)
    assert "\n" not in str(refusal.value)


def test_parameters_that_overlap_without_being_one_object_are_refused() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    module[1].weight = nn.Parameter(module[0].weight.data)
    with pytest.raises(ConfigError, match=r"1\.weight shares memory with 0\.weight"):
        FlatModel(module)


def test_moving_the_module_afterwards_is_noticed() -> None:
    module = small()
    model = FlatModel(module)
    module.double().float()
    with pytest.raises(ConfigError, match="moved or converted"):
        model.load(Flat.copy_of(torch.zeros(len(model))))


def test_a_parameter_whose_data_was_assigned_comes_back_with_its_numbers() -> None:
    module = small()
    model = FlatModel(module)
    first = next(iter(module.parameters()))
    assert model.weights() is model.weights()
    first.data = torch.full_like(first, 7.0)
    model.bring_home()
    assert first.data_ptr() == model.flat_parameter.data_ptr()
    assert first.eq(7.0).all()
    assert model.weights().value()[: first.numel()].eq(7.0).all()
    first.data = first.data.double()
    with pytest.raises(ConfigError, match="moved or converted"):
        model.bring_home()


@pytest.mark.cuda
@needs_cuda
def test_on_a_gpu_held_gradients_never_change_and_host_weights_load() -> None:
    module = small()
    wanted = [gradient_of(module, seed) for seed in range(4)]
    model = FlatModel(module, "cuda")
    held = []
    for seed in range(4):
        model.zero_grad()
        backward(module, seed, "cuda")
        held.append(model.gradient())
    for g, w in zip(held, wanted, strict=True):
        torch.testing.assert_close(g.value().cpu(), w, rtol=1e-3, atol=1e-5)
    w = Flat.copy_of(torch.randn(len(model))) * 2.0
    model.load(w)
    assert torch.equal(model.flat_parameter.detach().cpu(), w.value())


@pytest.mark.cuda
@needs_cuda
def test_parameters_on_two_devices_are_refused() -> None:
    with pytest.raises(ConfigError, match="use one device"):
        FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).cuda()))


def test_parameters_of_channels_last_keep_their_strides_and_train_the_same() -> None:
    """The vector has their numbers in the order of a contiguous model, with which they are exchanged."""
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
    strided = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    strides = [p.stride() for p in strided.parameters()]
    x = torch.randn(2, 3, 8, 8)
    flats = [FlatModel(module) for module in (plain, strided)]
    assert flats[0].fingerprint() == flats[1].fingerprint()
    for flat in flats:
        flat.zero_grad()
        flat.module(x).square().sum().backward()
    gradients = [flat.gradient().value() for flat in flats]
    torch.testing.assert_close(*gradients)
    with torch.no_grad():
        for p in strided.parameters():
            p.mul_(2.0)
    assert torch.equal(flats[1].weights().value(), flats[0].weights().value() * 2)
    w = Flat.copy_of(torch.arange(float(len(flats[0]))))
    for flat in flats:
        flat.load(w)
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), strided.parameters(), strict=True))
    with flats[1].showing(Flat.copy_of(torch.zeros(len(flats[1])))) as shown:
        assert [p.stride() for p in shown.parameters()] == strides
    assert [p.stride() for p in strided.parameters()] == strides
