"""A model of which only a part is trained ends as the plain loop of torch ends, whatever trains it.

Half of it is frozen, a layer is not in the optimizer, one is never used and one only now and then.
"""

from __future__ import annotations

import copy
import io
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paceline
from paceline.engine.data.partition_plan import make_partition
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data, toy_model

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.5),
}


BATCH = 8


class Partly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.norm = nn.BatchNorm1d(6, affine=False)
        self.outside = nn.Linear(6, 6)
        self.never, self.sometimes, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.register_buffer("scale", torch.full((6,), 0.9))

    def forward(self, x: Tensor) -> Tensor:
        x = self.outside(self.norm(self.frozen(x)).tanh()) * self.scale
        # Which batches use the layer is a matter of their first sample, so that it is the same in every process.
        return self.last(self.sometimes(x) if x[0, 0] > 0.1 else x)


def model_for(seed: int = 5) -> Partly:
    model, generator = Partly(), torch.Generator().manual_seed(seed)
    for p in model.parameters():
        with torch.no_grad():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.5)
    return model


def held(model: nn.Module) -> list[nn.Parameter]:
    """What the optimizer gets: frozen parameters as well, as many scripts do, but not the layer outside."""
    return [p for name, p in model.named_parameters() if not name.startswith("outside")]


def shares_of(workers: int, epochs: int, batch_size: int = BATCH) -> list[list[tuple[Tensor, Tensor]]]:
    """Each worker's batches, one after the other."""
    x, y = toy_data().tensors
    shares = make_partition("uniform", len(x), workers, None, 0)
    return [
        [
            (x[part], y[part])
            for epoch in range(epochs)
            for part in torch.from_numpy(shares.indices(rank, epoch)).split(batch_size)
        ]
        for rank in range(workers)
    ]


def plain(make_optimizer: MakeOptimizer, epochs: int = 2) -> nn.Module:
    model = model_for()
    optimizer = make_optimizer(held(model))
    for x, y in shares_of(1, epochs)[0]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def assert_same(model: nn.Module, other: nn.Module, buffers: bool = True) -> None:
    found, wanted = model.state_dict(), other.state_dict()
    assert list(found) == list(wanted)
    untouched = ("frozen", "outside", "never", "scale")
    for name in wanted if buffers else dict(model.named_parameters()):
        if name.startswith(untouched):
            assert torch.equal(found[name], wanted[name]), name
        else:
            torch.testing.assert_close(found[name], wanted[name], rtol=1e-5, atol=1e-6)


def test_the_model_of_these_tests_is_what_it_says() -> None:
    first, x = model_for(), shares_of(1, 3)[0]
    used = [(first.outside(first.norm(first.frozen(b)).tanh()) * first.scale)[0, 0].item() > 0.1 for b, _ in x]
    assert 2 < sum(used) < len(used) - 2
    trained = plain(OPTIMIZERS["adamw"])
    assert not torch.equal(trained.sometimes.weight, first.sometimes.weight)  # type: ignore[union-attr, arg-type]


SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("bsp", {}),
    ("asp", {}),
    ("dcasgd", {}),
    ("ssp", {}),
    ("esync", {}),
    ("localsgd", {}),
    ("gosgd", {}),
    ("diloco", {"outer_lr": 1.0, "outer_momentum": 0.0, "h": 1}),
    ("diloco", {"outer_lr": 1.0, "outer_momentum": 0.0, "h": 4}),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("scheme", "parameters"), SCHEMES, ids=lambda of: of if isinstance(of, str) else None)
@pytest.mark.usefixtures("alone")
def test_a_worker_that_is_alone_trains_what_torch_would(
    scheme: str, parameters: dict[str, Any], optimizer: str
) -> None:
    model = model_for()
    with paceline.join(model, OPTIMIZERS[optimizer](held(model)), scheme=scheme, **parameters) as pace:
        plain_steps(pace, model, toy_data(), batch_size=BATCH, epochs=2)
    assert_same(model, plain(OPTIMIZERS[optimizer]))


def loop(pace: Pace, model: nn.Module) -> None:
    plain_steps(pace, model, toy_data(), batch_size=BATCH, epochs=2)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("overlap", ["off", "on"])
@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_so_does_one_worker_with_two_servers_in_slices(
    scheme: str, overlap: str, optimizer: str, tmp_path: Path
) -> None:
    """Slices cut through parameters, so that a server has a part of what is unused, or two."""
    make = OPTIMIZERS[optimizer]
    cluster = {"slice_mb": 0.00005, "overlap": overlap}
    _, models = run_loops(
        tmp_path,
        scheme,
        loop,
        workers=1,
        servers=2,
        make_model=model_for,
        optimizer=make,
        held=held,
        cluster=cluster,
        sockets=True,
    )
    assert_same(models[0], plain(make))


def union_of_batches(make_optimizer: MakeOptimizer, workers: int) -> nn.Module:
    """One process that forms the mean over the samples of all workers' batches; who has used a layer counts."""
    model = model_for()
    optimizer = make_optimizer(held(model))
    for batches in zip(*shares_of(workers, 2), strict=True):
        optimizer.zero_grad()
        samples = sum(len(y) for _, y in batches)
        for x, y in batches:
            (nn.functional.cross_entropy(model(x), y, reduction="sum") / samples).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("servers", [0, 1, 3])
def test_two_workers_of_bsp_train_what_one_process_with_both_batches_would(
    servers: int, optimizer: str, tmp_path: Path
) -> None:
    """On servers, who has used a parameter is told; elsewhere a gradient that is zero throughout counts as unused."""
    make = OPTIMIZERS[optimizer]
    _, models = run_loops(
        tmp_path, "bsp", loop, workers=2, servers=servers, make_model=model_for, optimizer=make, held=held
    )
    for model in models.values():
        assert_same(model, union_of_batches(make, 2), buffers=False)


@pytest.mark.usefixtures("alone")
def test_a_frozen_part_of_another_type_is_left_as_it_is() -> None:
    """The base of a LoRA, say, in half precision."""

    class Lora(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(6, 2).bfloat16().requires_grad_(False)
            self.a, self.b = nn.Linear(6, 1, bias=False), nn.Linear(1, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x.bfloat16()).float() + self.b(self.a(x))

    model = Lora()
    before = model.base.weight.clone()
    pace = paceline.join(model, torch.optim.AdamW(model.parameters(), weight_decay=0.5), scheme="bsp")
    steps = plain_steps(pace, model, toy_data())
    pace.close()
    assert steps
    assert model.base.weight.dtype == torch.bfloat16
    assert torch.equal(model.base.weight, before)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_gradients_clipped_in_place_do_not_make_a_layer_used(scheme: str) -> None:
    model, other = model_for(), model_for()
    make = OPTIMIZERS["adamw"]
    with paceline.join(model, make(held(model)), scheme=scheme) as pace:
        for x, y in pace.batches(toy_data(), BATCH, epochs=2):
            nn.functional.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(held(model), 0.2)
            pace.step()
    optimizer = make(held(other))
    with warnings.catch_warnings():
        for x, y in shares_of(1, 2)[0]:
            optimizer.zero_grad()
            nn.functional.cross_entropy(other(x), y).backward()
            nn.utils.clip_grad_norm_(held(other), 0.2)
            optimizer.step()
    assert_same(model, other)


def size_of(what: Any) -> int:
    file = io.BytesIO()
    torch.save(what, file)
    return len(file.getvalue())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 40), nn.BatchNorm1d(40)
        self.one, self.other = nn.Linear(40, 2), nn.Linear(40, 2)
        self.other.weight = self.one.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x))
        found: Tensor = self.one(x) + self.other(x)
        return found


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_what_is_saved_or_copied_of_a_model_is_that_of_a_plain_one(scheme: str, tmp_path: Path) -> None:
    """During the run and after it: as long, with its own memory, and without a trace of Paceline."""
    plain, model = Tied(), Tied()
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme=scheme)
    for when in ("before", "during", "after"):
        if when == "during":
            plain_steps(pace, model, toy_data())
        elif when == "after":
            pace.close()
        for of in (lambda m: m, lambda m: m.state_dict(), lambda m: m.norm, lambda m: m.one.state_dict()):
            assert size_of(of(model)) == size_of(of(plain)), when
        twin = copy.deepcopy(model)
        for m in (model, twin):
            assert m.one.weight is m.other.weight
            assert all(t.untyped_storage().nbytes() == t.nbytes for t in m.state_dict().values())
            assert not any(part._state_dict_hooks or part._forward_pre_hooks for part in m.modules())
        twin.load_state_dict(plain.state_dict())
        assert not torch.equal(twin.first.weight, model.first.weight)
        assert all(p.grad is None for p in twin.parameters())
    assert all(p.grad is None and not p._post_accumulate_grad_hooks for p in model.parameters())


@pytest.mark.usefixtures("alone")
def test_a_saved_model_loads_where_there_is_no_paceline(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="bsp")
    plain_steps(pace, model, toy_data())
    torch.save(model, tmp_path / "model.pt")
    pace.close()
    with zipfile.ZipFile(tmp_path / "model.pt") as file:
        (pickled,) = [name for name in file.namelist() if name.endswith("data.pkl")]
        assert b"paceline" not in file.read(pickled)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_scripted_and_transposed_models_are_trained_like_others(scheme: str) -> None:
    def made() -> nn.Module:
        model = toy_model()
        model[0].weight = nn.Parameter(model[0].weight.detach().t().contiguous().t())
        assert not model[0].weight.is_contiguous()
        return torch.jit.script(model)  # type: ignore[no-any-return]

    def trained(make: Callable[[], nn.Module]) -> dict[str, Tensor]:
        model = make()
        with paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme=scheme) as pace:
            plain_steps(pace, model, toy_data())
        return model.state_dict()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = trained(made)
    for name, t in trained(toy_model).items():
        torch.testing.assert_close(found[name], t)
