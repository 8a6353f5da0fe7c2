"""Parameters of bfloat16: servers keep float32 masters; alone, a loop trains just what it trains without us."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paceline
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import plain_steps, run_loops, toy_data
from tests.runtime.runs.test_trained_and_rest import BATCH, shares_of

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Half(nn.Module):
    """Matrices in bfloat16, a norm in float32, one layer that is used now and then."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.first, self.last = nn.Linear(6, 5).bfloat16(), nn.Linear(5, 2).bfloat16()
        self.norm, self.sometimes = nn.LayerNorm(5), nn.Linear(5, 5).bfloat16()
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.first(x.bfloat16()).float()).tanh().bfloat16()
        return self.last(self.sometimes(h) if x[0, 0] > 0.1 else h).float()  # type: ignore[no-any-return]


def gently(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Steps so small that bfloat16 would not show most of them."""
    return torch.optim.SGD(parameters, lr=0.002, momentum=0.5)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    every = list(parameters)
    return torch.optim.AdamW([{"params": every[::2]}, {"params": every[1::2], "weight_decay": 0.5}], lr=0.01)


def with_masters(make: Make, workers: int) -> nn.Module:
    """One process: float32 masters, computed at as they are rounded, with the batches of all."""
    model = Half()
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizer = make(masters)
    for of_each in zip(*shares_of(workers, 2), strict=True):
        sums: list[Tensor | None] = [None] * len(masters)
        samples = sum(len(y) for _, y in of_each)
        for x, y in of_each:
            model.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            for i, p in enumerate(model.parameters()):
                if p.grad is not None:
                    part = p.grad.float() * (len(y) / samples)
                    before = sums[i]
                    sums[i] = part if before is None else before + part
        for master, total in zip(masters, sums, strict=True):
            master.grad = total
        optimizer.step()
        with torch.no_grad():
            for p, master in zip(model.parameters(), masters, strict=True):
                p.copy_(master)
    return model


def plain(make: Make) -> nn.Module:
    model = Half()
    optimizer = make(model.parameters())
    for x, y in shares_of(1, 2)[0]:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def loop(pace: Pace, model: nn.Module) -> None:
    plain_steps(pace, model, toy_data(), batch_size=BATCH, epochs=2)


def assert_close(model: nn.Module, wanted: nn.Module, ulps: float = 1.0) -> None:
    """A number on the edge between two of bfloat16 may be rounded either way."""
    for (name, mine), other in zip(model.named_parameters(), wanted.parameters(), strict=True):
        assert mine.dtype == other.dtype
        low = mine.dtype == torch.bfloat16
        torch.testing.assert_close(
            mine, other, rtol=ulps * 2**-7 if low else 1e-4, atol=1e-4, msg=lambda why, name=name: f"{name}: {why}"
        )


@pytest.mark.parametrize("make", [gently, adamw])
@pytest.mark.parametrize(("scheme", "workers", "servers"), [("asp", 1, 2), ("bsp", 2, 2)])
def test_servers_keep_masters_in_float32(make: Make, scheme: str, workers: int, servers: int, tmp_path: Path) -> None:
    _, models = run_loops(tmp_path, scheme, loop, workers=workers, servers=servers, make_model=Half, optimizer=make)
    for model in models.values():
        assert_close(model, with_masters(make, workers))


def test_what_bfloat16_would_lose_is_not_lost(tmp_path: Path) -> None:
    """The test above would see it: without masters small steps come to something else."""
    with pytest.raises(AssertionError):
        assert_close(plain(gently), with_masters(gently, 1))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["bsp", "esync"])
@pytest.mark.parametrize("make", [gently, adamw])
def test_alone_a_loop_trains_bit_for_bit_what_it_trains_without_us(make: Make, scheme: str) -> None:
    model, wanted = Half(), plain(make)
    with paceline.join(model, make(model.parameters()), scheme=scheme) as pace:
        loop(pace, model)
    for (name, mine), other in zip(model.named_parameters(), wanted.parameters(), strict=True):
        assert torch.equal(mine, other), name


def test_so_they_do_where_gradients_leave_early(tmp_path: Path) -> None:
    cluster = {"slice_mb": 0.00005, "overlap": "on"}
    more: dict[str, Any] = {"make_model": Half, "optimizer": adamw, "cluster": cluster, "sockets": True}
    _, models = run_loops(tmp_path, "asp", loop, workers=1, servers=2, **more)
    assert_close(models[0], with_masters(adamw, 1))


def test_what_a_worker_changes_is_added_to_the_master() -> None:
    module = nn.Linear(2, 1, bias=False).bfloat16()
    flat = FlatModel(module)
    master = torch.tensor([1.0 + 2**-10, 1.0])  # the first is not a number of bfloat16
    flat.load(Flat.copy_of(master))
    assert module.weight.tolist() == [[1.0, 1.0]]
    assert torch.equal(flat.weights().value(), master), "nothing has changed"
    with torch.no_grad():
        module.weight += 0.5
    assert torch.equal(flat.weights().value(), master + 0.5)
