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
from paceline.engine.model import flat_model
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat, FlatMemory

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture
def separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets autograd make gradients apart on the CPU as it does on a GPU."""
    monkeypatch.setattr(flat_model, "SEPARATE_ON", frozenset({"cpu", "cuda"}))


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


def test_the_gradient_is_that_of_plain_torch_and_costs_no_copy() -> None:
    module = small()
    wanted = gradient_of(module)
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    g = model.gradient()
    torch.testing.assert_close(g.value(), wanted)
    assert g.tensor.data_ptr() == next(module.parameters()).grad.data_ptr()  # type: ignore[union-attr]
    assert model.flat_parameter.grad is not None
    assert model.flat_parameter.grad.data_ptr() == g.tensor.data_ptr()


def test_gradients_accumulate_until_zero_grad() -> None:
    module = small()
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    backward(module)
    torch.testing.assert_close(model.gradient().value(), 2 * gradient_of(module))


def test_a_gradient_that_nobody_holds_is_made_in_the_same_buffer() -> None:
    module = small()
    model = FlatModel(module)
    places = set()
    for _ in range(5):
        model.zero_grad()
        backward(module)
        places.add(model.gradient().tensor.data_ptr())
    assert len(places) == 1


@pytest.mark.parametrize(
    "hold",
    [
        lambda g: g,
        lambda g: g[3:9],
        lambda g: g * 0.5,
        lambda g: g.value().view(1, -1),
        lambda g: FlatMemory().bytes_of(g),
    ],
    ids=["itself", "slice", "scaled", "tensor", "bytes"],
)
def test_a_gradient_that_somebody_holds_never_changes(hold: object) -> None:
    module = small()
    model = FlatModel(module)
    held = []
    for seed in range(6):
        model.zero_grad()
        backward(module, seed)
        g = model.gradient()
        held.append((hold(g), g.value().clone()))  # type: ignore[operator]
        del g
        if seed == 3:
            held.pop(1)
    for seed, (kept, then) in zip((0, 2, 3, 4, 5), held, strict=True):
        torch.testing.assert_close(then, gradient_of(module, seed))
        wanted = hold(Flat.wrap(then))  # type: ignore[operator]
        if isinstance(kept, Flat):
            assert torch.equal(kept.value(), wanted.value())
        elif isinstance(kept, torch.Tensor):
            assert torch.equal(kept, wanted)
        else:
            assert kept == wanted


def test_gradients_held_in_turn_need_two_buffers_only() -> None:
    module = small()
    model = FlatModel(module)
    places, last = set(), None
    for _ in range(10):
        model.zero_grad()
        backward(module)
        last = model.gradient()
        places.add(last.tensor.data_ptr())
    assert len(places) == 2


def test_gradients_dropped_or_replaced_by_the_user_come_home() -> None:
    module = small()
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    held = model.gradient()
    then = held.value().clone()
    torch.optim.SGD(module.parameters(), lr=0.1).zero_grad()  # drops every .grad
    backward(module, seed=1)
    g = model.gradient()
    torch.testing.assert_close(g.value(), gradient_of(module, seed=1))
    assert torch.equal(held.value(), then)
    assert next(module.parameters()).grad.data_ptr() == g.tensor.data_ptr()  # type: ignore[union-attr]

    first = next(module.parameters())
    first.grad = None
    model.zero_grad()
    assert first.grad is not None
    assert not model.gradient().value().any()


def test_sparse_gradients_come_home_dense() -> None:
    module = nn.Embedding(6, 2, sparse=True)
    model = FlatModel(module)
    for p in module.parameters():
        p.grad = None
    module(torch.tensor([1, 1, 4])).sum().backward()
    assert model.gradient().value().view(6, 2)[:, 0].tolist() == [0, 2, 0, 0, 1, 0]


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


@pytest.mark.usefixtures("separate")
def test_gradients_that_are_made_apart_are_joined_when_they_are_asked_for() -> None:
    module = small()
    wanted = [gradient_of(module, seed) for seed in range(3)]
    model, held = FlatModel(module), list[Flat]()
    for seed in range(3):
        model.zero_grad()
        assert not model.has_gradient
        assert all(p.grad is None for p in module.parameters())
        backward(module, seed)
        assert model.has_gradient
        g = model.gradient()
        assert isinstance(g, Flat)
        assert model.unused() == ()
        held.append(g)
    for g, one in zip(held, wanted, strict=True):
        assert torch.equal(g.value(), one)


@pytest.mark.usefixtures("separate")
def test_parameters_without_a_gradient_are_told_where_gradients_are_made_apart() -> None:
    module = small()
    model = FlatModel(module)
    for frozen in (True, False):
        model.zero_grad()
        backward(module)
        if frozen:
            module[3].weight.grad = None
        g, at = model.gradient(), len(model) - module[3].weight.numel()
        assert model.unused() == (((at, len(model)),) if frozen else ())
        assert bool(g.value()[at:].any()) is not frozen


@pytest.mark.usefixtures("separate")
def test_two_backward_passes_add_up_where_gradients_are_made_apart() -> None:
    module = small()
    wanted = gradient_of(module, 0) + gradient_of(module, 1)
    model = FlatModel(module)
    model.zero_grad()
    backward(module, 0)
    backward(module, 1)
    torch.testing.assert_close(model.gradient().value(), wanted)


@pytest.mark.usefixtures("separate")
def test_gradients_that_leave_early_are_made_in_one_buffer() -> None:
    module = small()
    wanted = gradient_of(module)
    model = FlatModel(module)
    model.join_gradients()
    model.join_gradients()
    model.zero_grad()
    backward(module)
    assert model.gradient().tensor.data_ptr() == module[0].weight.grad.data_ptr()
    assert torch.equal(model.gradient().value(), wanted)


@pytest.mark.usefixtures("separate")
def test_a_gradient_is_put_where_an_optimizer_finds_it_although_others_are_made_apart() -> None:
    module = small()
    model = FlatModel(module)
    model.zero_grad()
    backward(module)
    g = model.gradient()
    model.put_gradient(g * 2.0, ())
    found = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.equal(found, 2.0 * g.value())
    model.zero_grad()
    assert not model.has_gradient


@pytest.mark.usefixtures("separate")
def test_gradients_that_were_joined_for_a_while_are_apart_again() -> None:
    module = small()
    model = FlatModel(module)
    model.join_gradients()
    backward(module)
    joined = model.gradient()
    model.separate_gradients()
    assert torch.equal(joined.value(), gradient_of(module))
    model.zero_grad()
    assert all(p.grad is None for p in module.parameters())
    backward(module, 1)
    assert torch.equal(model.gradient().value(), gradient_of(module, 1))
    assert model.unused() == ()
    assert torch.equal(joined.value(), gradient_of(module))


def test_gradients_that_were_never_apart_stay_joined() -> None:
    module = small()
    model = FlatModel(module)
    model.separate_gradients()
    model.zero_grad()
    assert all(p.grad is not None for p in module.parameters())
