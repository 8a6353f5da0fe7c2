"""What is not trained begins with that of worker 0."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost
from paceline.engine.model.trainable import Rest
from paceline.engine.vectors.flat import Flat
from paceline.live.node.published_state import PublishedState
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps import untrained_state
from paceline.runtime.worker.steps.untrained_state import RestProgress, SharedRest
from tests.runtime.own_loops import run_loops, toy_data
from tests.runtime.runs.test_trained_and_rest import held, model_for


def test_all_begin_with_what_worker_0_has_of_the_rest_too(tmp_path: Path) -> None:
    """Frozen parameters, those outside the optimizer, and buffers of any type; the trained ones as ever."""
    made: list[nn.Module] = []

    def another() -> nn.Module:
        model = model_for(seed=len(made))
        model.register_buffer("counts", torch.arange(3) + len(made))
        model.register_parameter("low", nn.Parameter(torch.full((3,), float(len(made))).half(), requires_grad=False))
        made.append(model)
        return model

    def no_steps(pace: Pace, model: nn.Module) -> None:
        found[pace.rank] = {name: t.clone() for name, t in model.state_dict().items()}

    found: dict[int, dict[str, Tensor]] = {}
    run_loops(tmp_path, "bsp", no_steps, workers=3, make_model=another, held=held)
    for rank in (1, 2):
        for name, wanted in found[0].items():
            assert torch.equal(found[rank][name], wanted), name


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync", "gosgd"])
@pytest.mark.parametrize("width", [1, 64])
def test_it_may_be_longer_than_what_is_trained(tmp_path: Path, scheme: str, width: int) -> None:
    """Few numbers are trained, and only worker 0 has the body that all are to have."""
    made: list[nn.Module] = []

    def another() -> nn.Module:
        torch.manual_seed(len(made))
        body = nn.Linear(4, 64).requires_grad_(False)
        made.append(nn.Sequential(body, nn.AdaptiveAvgPool1d(width), nn.Linear(width, 1, bias=False)))
        return made[-1]

    def loop(pace: Pace, model: nn.Module) -> None:
        for x, y in pace.batches(toy_data(), 8):
            nn.functional.mse_loss(model(x[:, :4])[:, 0], y.float()).backward()
            pace.step()

    head = lambda model: model[2].parameters()  # noqa: E731
    run_loops(tmp_path, scheme, loop, workers=2, make_model=another, held=head, sockets=True)
    assert torch.equal(made[0][0].weight, made[1][0].weight)  # type: ignore[index]


class Buffers(nn.Module):
    """Has buffers of every kind, whose numbers are `value`'s."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value, self.head = value, nn.Linear(6, 2)
        self.register_buffer("strided", torch.full((3, 4), value).t())
        self.register_buffer("expanded", torch.full((1,), value).expand(4))
        self.register_buffer("waves", torch.full((3,), complex(value, 1.0)))
        self.register_buffer("flags", torch.full((5,), value > 0))
        self.register_buffer("packed", torch.full((7, 1), int(value), dtype=torch.uint8))
        self.register_buffer("graph", (torch.ones(4, 4) if value else torch.eye(4)).to_sparse())
        self.register_buffer("found", torch.zeros(0))
        self.register_buffer("long", torch.arange(100.0) + value)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("sockets", [False, True])
def test_buffers_of_any_kind_are_worker_0s_in_pieces_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sockets: bool
) -> None:
    monkeypatch.setattr(untrained_state, "PIECE", 64)
    values = itertools.count()

    def loop(pace: Pace, model: nn.Module) -> None:
        found[pace.rank] = {name: t.to_dense().clone() for name, t in model.named_buffers()}
        model.get_buffer("found").resize_(3)  # as an observer does once it knows its channels

    found: dict[int, dict[str, Tensor]] = {}
    make_model = lambda: Buffers(float(next(values)))  # noqa: E731
    _, models = run_loops(tmp_path, "bsp", loop, workers=2, make_model=make_model, sockets=sockets)
    assert isinstance(models[0], Buffers)
    for name, wanted in Buffers(models[0].value).named_buffers():
        assert torch.equal(found[1][name], wanted.to_dense()), name
        assert torch.equal(found[0][name], wanted.to_dense()), name


def test_the_evaluator_judges_with_worker_0s_untrained_state(tmp_path: Path) -> None:
    """Each process has drawn a body of its own."""
    made: list[nn.Module] = []

    def another() -> nn.Module:
        torch.manual_seed(len(made))
        made.append(nn.Sequential(nn.Linear(6, 5).requires_grad_(False), nn.Linear(5, 2)))
        return made[-1]

    def loop(pace: Pace, model: nn.Module) -> None:
        bodies[pace.rank] = model.get_parameter("0.weight").clone()
        for x, y in pace.batches(toy_data(), 8):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()

    def judge(model: nn.Module) -> float:
        judged.append(model.get_parameter("0.weight").clone())
        return 0.5

    bodies: dict[int, Tensor] = {}
    judged: list[Tensor] = []
    head = lambda model: model[1].parameters()  # noqa: E731
    run_loops(tmp_path, "asp", loop, workers=2, make_model=another, held=head, evaluate=judge)
    assert judged
    assert all(torch.equal(body, bodies[0]) for body in [*judged, bodies[1]])


# ---- without a run -----------------------------------------------------------------------------------------------
class Shown:
    """Stands for the nodes of workers, which read what the others publish."""

    def __init__(self) -> None:
        self.published: dict[int, dict[str, Any]] = {}
        self.strikes: list[str] = []

    def session(self, rank: int) -> Any:
        mine = self.published[rank] = {}
        node = SimpleNamespace(
            me=party.worker(rank),
            published=mine,
            longest_answer=0,
            read_published_of=self._read,
            of_length=lambda rank, shown, length: shown,
            shows_wrongly=lambda rank, why: self.strikes.append(why),
        )
        return SimpleNamespace(node=node, reach=lambda who: None)

    def _read(self, who: Party, what: str, piece: int = 0) -> PublishedState:
        shown = self.published[who.index][what](piece)
        return shown if isinstance(shown, PublishedState) else PublishedState(v=shown)


def begun(shown: Shown, rank: int, value: float) -> tuple[nn.Module, SharedRest]:
    model = nn.Linear(3, 2)
    model.register_buffer("frozen", torch.full((4,), value))
    return model, SharedRest(shown.session(rank), Rest(model, dict(model.named_parameters())))


def test_what_a_worker_has_taken_is_what_the_next_one_takes_from_it() -> None:
    """Worker 0 alone has loaded numbers of its own. It is away when worker 2 comes back and asks worker 1."""
    shown = Shown()
    begun(shown, 0, 7.0)
    _, of_worker_1 = begun(shown, 1, 1.0)
    of_worker_1.take(0)
    model, of_worker_2 = begun(shown, 2, 1.0)
    of_worker_2.take(1)
    assert model.get_buffer("frozen").tolist() == [7.0] * 4


@pytest.mark.parametrize(
    ("length", "facts", "why"),
    [
        (4, "[5]", "a piece of 16 bytes for 20"),
        (2, "[4]", "a piece of 8 bytes for 16"),
        (4, "[99999999]", "frozen of shape"),
        (4, "[-4]", "frozen of shape"),
        (4, '{"a": 1}', "frozen of shape"),
        (4, "[" * 9000, "frozen of shape"),
    ],
)
def test_a_worker_that_shows_what_does_not_fit_gets_a_strike(length: int, facts: str, why: str) -> None:
    shown = Shown()
    begun(shown, 0, 7.0)
    shown.published[0]["rest 0"] = lambda piece: PublishedState(v=Flat.copy_of(torch.ones(length)), facts=facts)
    _, of_worker_1 = begun(shown, 1, 1.0)
    with pytest.raises(PeerLost, match="worker 0 shows nothing of use"):
        of_worker_1.take(0)
    assert why in shown.strikes[0]


def test_a_line_says_how_far_it_is_where_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 1.0, 3.0, 4.0, 99.0])
    progress = RestProgress(Shown().session(1), "compared", 4_000_000_000, clock=lambda: next(times))
    for _ in range(4):
        progress.passed(1_000_000_000)
    line = "paceline: worker 1: 2.0 of 4.0 GB that are not trained are compared\n"
    assert capsys.readouterr().err == line, "none in the first two seconds, none soon after, none at the end"


def test_a_tensor_that_has_no_numbers_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        model = nn.Linear(2, 1)
        model.register_buffer("later", torch.zeros(3, device="meta"))
        SharedRest(Shown().session(rank), Rest(model, dict(model.named_parameters())))
    assert capsys.readouterr().err.count("each worker keeps its own later:") == 1
