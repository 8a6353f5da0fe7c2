"""Embeddings whose gradients travel as rows train to the same model as those whose gradients travel whole."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from paceline.core.effects import Reply
from paceline.core.paramserver.gated_server import ClockedServer, Pull, Push
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import make, names
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import SparseFlat
from paceline.engine.sparse.table_layout import Tables
from paceline.engine.sparse.table_layout import TableSpan as TablePlace
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops

ROWS, WIDTH, BATCH, WORDS = 3000, 8, 6, 4
DENSE = 4 * WIDTH + 3 * 2 + WIDTH * 2 + 2  # elements that are in no table of `TwoTables`
WAYS = [("hub", 1), ("sockets", 1), ("sockets", 3)]


class TwoTables(nn.Module):
    """Words and a second table that is hardly ever used, around something dense."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(ROWS, WIDTH, sparse=sparse, padding_idx=0)
        self.scale = nn.Parameter(torch.ones(4, WIDTH))
        self.rare = nn.Embedding(7, 3, sparse=sparse)
        self.mixed = nn.Linear(3, 2)
        self.out = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out((self.words(x) * self.scale).mean(1))
        seldom = x[:, 0] % 5 == 0
        return y + self.mixed(self.rare(x[:, 1] % 7)) * seldom[:, None] if bool(seldom.any()) else y


def texts(n: int = 90) -> TensorDataset:
    """Padded with 0, some with the same word twice."""
    x = torch.randint(1, ROWS, (n, WORDS), generator=torch.Generator().manual_seed(4))
    x[:, 3] = torch.where(x[:, 3] % 2 == 0, 0, x[:, 2])
    return TensorDataset(x, x[:, 0] % 2)


def two_tables(sparse: bool) -> nn.Module:
    model = TwoTables(sparse)
    generator = torch.Generator().manual_seed(2)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3, generator=generator)
    return model


def steps(count: int) -> Any:
    def loop(pace: Pace, model: nn.Module) -> None:
        for done, (x, y) in enumerate(pace.batches(texts(), BATCH, epochs=None)):
            if done == count:
                return
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    return loop


def trained(out: Path, scheme: str, sparse: bool, *, count: int = 12, **options: Any) -> tuple[Any, list[Tensor]]:
    """The summary, and each worker's model as one vector."""
    summary, models = run_loops(out, scheme, steps(count), make_model=lambda: two_tables(sparse), **options)
    ends = [torch.cat([p.detach().flatten() for p in models[rank].parameters()]) for rank in sorted(models)]
    return summary, ends


@pytest.mark.parametrize(("how", "servers"), WAYS)
def test_bsp_by_rows_equals_bsp_with_whole_gradients(tmp_path: Path, how: str, servers: int) -> None:
    way: dict[str, Any] = {"workers": 2, "servers": servers, "sockets": how == "sockets"}
    _, rows = trained(tmp_path / "rows", "bsp", True, **way)
    _, whole = trained(tmp_path / "whole", "bsp", False, **way)
    torch.testing.assert_close(rows[0], whole[0], rtol=1e-6, atol=1e-7)
    assert torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[0], torch.cat([p.detach().flatten() for p in two_tables(True).parameters()]))


@pytest.mark.parametrize(("how", "servers"), WAYS)
@pytest.mark.parametrize("scheme", ["asp", "ssp", "gsp", "dcasgd"])
def test_one_worker_under_any_scheme_trains_the_same_by_rows(
    tmp_path: Path, scheme: str, how: str, servers: int
) -> None:
    way: dict[str, Any] = {"workers": 1, "servers": servers, "sockets": how == "sockets"}
    _, (rows,) = trained(tmp_path / "rows", scheme, True, **way)
    _, (whole,) = trained(tmp_path / "whole", scheme, False, **way)
    torch.testing.assert_close(rows, whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        ("eamsgd", {}),
        ("tiers", {}),
        ("tiers", {"inner": "asp"}),
        ("hybrid", {"phases": "asp until 4 steps; eamsgd"}),
    ],
)
def test_so_does_one_whose_own_optimizer_makes_the_updates(
    tmp_path: Path, scheme: str, parameters: dict[str, Any]
) -> None:
    way: dict[str, Any] = {"workers": 1, "servers": 1, **parameters}
    _, (rows,) = trained(tmp_path / "rows", scheme, True, **way)
    _, (whole,) = trained(tmp_path / "whole", scheme, False, **way)
    torch.testing.assert_close(rows, whole, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("scheme", ["asp", "ssp", "gsp"])
def test_workers_that_run_freely_end_with_one_model(tmp_path: Path, scheme: str) -> None:
    _, ends = trained(tmp_path / "run", scheme, True, workers=3, servers=2, sockets=True)
    assert all(torch.equal(end, ends[0]) for end in ends)
    assert torch.isfinite(ends[0]).all()


def test_what_is_sent_follows_the_rows_of_a_batch_not_the_table(tmp_path: Path) -> None:
    way: dict[str, Any] = {"workers": 1, "servers": 1, "sockets": True}
    short, _ = trained(tmp_path / "short", "asp", True, count=10, **way)
    long, _ = trained(tmp_path / "long", "asp", True, count=60, **way)
    row_bytes = 4 * (1 + WIDTH)
    batch_bytes = BATCH * WORDS * row_bytes + 7 * 16 + 4 * DENSE
    table_bytes = 4 * ROWS * WIDTH
    for began, ended in ((short.bytes_up, long.bytes_up), (short.bytes_down, long.bytes_down)):
        each = (ended - began) / 50
        assert 4 * DENSE < each < batch_bytes + 1000 < table_bytes / 10  # 1000: headers, reports


def test_an_optimizer_that_moves_untouched_rows_gets_whole_gradients(tmp_path: Path) -> None:
    def momentum(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)

    _, (rows,) = trained(tmp_path / "rows", "asp", True, workers=1, optimizer=momentum)
    _, (whole,) = trained(tmp_path / "whole", "asp", False, workers=1, optimizer=momentum)
    torch.testing.assert_close(rows, whole)


# ---- every scheme's own boxes ----------------------------------------------------------------------------------------
def by_rows(name: str) -> bool:
    scheme = make(name, {})
    return Recipe(scheme=name, parameters=scheme.parameters(), optimizer=OptimizerRecipe()).by_rows(1)


SCHEMES = [
    (name, {}) for name in names() if by_rows(name) and issubclass(make(name, {}).server(1) or Role, ClockedServer)
]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("dcasgd", {"variant": "adaptive", "lam": 2.0}),
    ("dcasgd", {"variant": "mxnet"}),
    ("asp", {"weighting": "inverse"}),
]
WHERE = Tables(5 + 30 * 4 + 2, (TablePlace(5, 30, 4),))


def gradient(rng: random.Random) -> SparseFlat:
    held = torch.tensor(sorted(rng.sample(range(30), rng.randint(0, 6))), dtype=torch.int64)
    numbers = torch.randn(
        WHERE.dense_length + 4 * len(held), generator=torch.Generator().manual_seed(rng.randrange(1000))
    )
    rows = Rows(30, 4, held, Flat(numbers[WHERE.dense_length :]))
    return SparseFlat(WHERE, Flat(numbers[: WHERE.dense_length]), (rows,))


def server_of(name: str, parameters: dict[str, Any]) -> Role:
    scheme = make(name, parameters)
    rule = Recipe(scheme=name, parameters=scheme.parameters(), optimizer=OptimizerRecipe(lr=0.1)).make_rule()
    box = scheme.server(1)
    assert box is not None
    w = Flat(torch.randn(WHERE.length, generator=torch.Generator().manual_seed(9)))
    return box(scheme, RoleContext(me=0, workers=(0, 1, 2), w=w, update=rule))


@pytest.mark.parametrize(("name", "parameters"), [*SCHEMES, *VARIANTS])
def test_a_server_box_makes_of_rows_what_it_makes_of_whole_gradients(name: str, parameters: dict[str, Any]) -> None:
    rows, whole = server_of(name, parameters), server_of(name, parameters)
    rng = random.Random(5)
    clocks, free, answers = dict.fromkeys(range(3), 0), {0, 1, 2}, 0
    handed_out: list[tuple[Any, Tensor]] = []
    for box in (rows, whole):
        for rank in range(3):
            list(box.on(0.0, rank, Pull()))
    for _ in range(60):
        rank = rng.choice(sorted(free))
        free.discard(rank)
        clocks[rank] += 1
        g = gradient(rng)
        got = list(rows.on(0.0, rank, Push(g=g, clock=clocks[rank], samples=4)))
        wanted = list(whole.on(0.0, rank, Push(g=Flat(g.value().clone()), clock=clocks[rank], samples=4)))
        for one, other in zip(got, wanted, strict=True):
            assert isinstance(one, Reply)
            assert isinstance(other, Reply)
            assert one.to == other.to
            torch.testing.assert_close(one.message.w.value(), other.message.w.value(), rtol=1e-5, atol=1e-6)
            handed_out.append((one.message.w, other.message.w.value()))
            free.add(one.to)
            answers += 1
    assert answers > 10
    for w, numbers in handed_out:  # and nothing that was handed out has changed since
        torch.testing.assert_close(w[0 : len(w)].value(), numbers, rtol=1e-5, atol=1e-6)


def test_the_schemes_whose_servers_take_gradients_are_those_that_take_rows() -> None:
    assert {"asp", "bsp", "ssp", "gsp", "dcasgd", "ksync", "partial", "weedout", "dssp"} <= {n for n, _ in SCHEMES}
    assert {"diloco", "localsgd", "esync", "gosgd", "easgd", "adpsgd"}.isdisjoint({n for n, _ in SCHEMES})
