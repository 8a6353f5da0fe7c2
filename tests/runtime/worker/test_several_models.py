"""Several models and optimizers in one loop: a GAN trains as it does alone, and two workers as one process would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import paceline
from paceline.core.errors import ConfigError
from paceline.engine.model.several_models import together
from paceline.launch.local.environment import PREFIX
from paceline.runtime.worker.pace import Pace
from tests.runtime.own_loops import run_loops, toy_data

X = toy_data().tensors[0]
NOISE = torch.randn(len(X), 3, generator=torch.Generator().manual_seed(7))
BATCH = 9
Models = dict[str, nn.Module]
Optimizers = dict[str, torch.optim.Optimizer]
Make = Callable[[Any], Optimizers]


def models() -> Models:
    generator = torch.Generator().manual_seed(3)
    made: Models = {
        "D": nn.Sequential(nn.Linear(6, 5), nn.LeakyReLU(0.2), nn.Linear(5, 1)),
        "G": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6)),
    }
    for model in made.values():
        for p in model.parameters():
            nn.init.normal_(p, std=0.4, generator=generator)
    return made


def adams(of: Any) -> Optimizers:
    """As dcgan has them, but for rates of their own."""
    return {
        "D": torch.optim.Adam(of["D"].parameters(), lr=0.02, betas=(0.5, 0.999)),
        "G": torch.optim.Adam(of["G"].parameters(), lr=0.01, betas=(0.5, 0.999), weight_decay=0.1),
    }


def rmsprops(of: Any) -> Optimizers:
    return {name: torch.optim.RMSprop(of[name].parameters(), lr=0.01) for name in "DG"}


def unlike(of: Any) -> Optimizers:
    """Two classes, which no server can be told of in one."""
    momentum = torch.optim.SGD(of["D"].parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    return {"D": momentum, "G": torch.optim.AdamW(of["G"].parameters(), lr=0.02)}


def of_discriminator(of: Any, x: Tensor, z: Tensor, samples: int = 0) -> Tensor:
    real, fake = of["D"](x), of["D"](of["G"](z).detach())
    loss = bce(real, torch.ones_like(real)) + bce(fake, torch.zeros_like(fake))
    return loss * (len(x) / samples) if samples else loss


def of_generator(of: Any, x: Tensor, z: Tensor, samples: int = 0) -> Tensor:
    found = of["D"](of["G"](z))
    loss = bce(found, torch.ones_like(found))
    return loss * (len(x) / samples) if samples else loss


def batches(rank: int = 0, workers: int = 1, epochs: int = 2) -> list[tuple[Tensor, Tensor]]:
    return [
        (X[start : start + BATCH], NOISE[start : start + BATCH])
        for _ in range(epochs)
        for start in range(rank * BATCH, len(X), workers * BATCH)
    ]


def plain(make: Make, workers: int = 1) -> Models:
    """The loop without Paceline; a batch of it is that of all workers."""
    of = models()
    optimizers = make(of)
    for each in zip(*(batches(rank, workers) for rank in range(workers)), strict=True):
        samples = sum(len(x) for x, _ in each) if workers > 1 else 0
        for name, loss in (("D", of_discriminator), ("G", of_generator)):
            of[name].zero_grad()
            for x, z in each:
                loss(of, x, z, samples).backward()
            optimizers[name].step()
    return of


def train(pace: Pace, of: Any, workers: int = 1) -> None:
    """The same, with the script's own calls of zero_grad left in."""
    for x, z in batches(pace.rank, workers):
        of["D"].zero_grad()
        of_discriminator(of, x, z).backward()
        pace.step("D", len(x))
        of["G"].zero_grad()
        of_generator(of, x, z).backward()
        pace.step("G", len(x))


def assert_same(found: Any, wanted: Models) -> None:
    for name, model in wanted.items():
        for key, value in model.state_dict().items():
            torch.testing.assert_close(found[name].state_dict()[key], value, rtol=1e-5, atol=1e-6)


def run(tmp_path: Path, scheme: str, loop: Callable[[Pace, Any], None], make: Make, **more: Any) -> Any:
    return run_loops(
        tmp_path,
        scheme,
        loop,
        make_model=lambda: nn.ModuleDict(models()),
        held=lambda model: model,  # type: ignore[arg-type, return-value]
        optimizer=lambda model: together(dict(model.items()), make(model))[1],  # type: ignore[attr-defined]
        **more,
    )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(f"{PREFIX}COORDINATOR", raising=False)


SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("asp", {}),
    ("ssp", {}),
    ("dcasgd", {}),
    ("esync", {}),
    ("localsgd", {}),
    ("diloco", {"outer_lr": 1.0, "outer_momentum": 0.0, "h": 4}),
    ("sgp", {}),
]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("make", [adams, rmsprops])
@pytest.mark.parametrize(("scheme", "parameters"), SCHEMES, ids=[scheme for scheme, _ in SCHEMES])
def test_a_gan_that_is_alone_trains_what_it_trains_without_us(
    make: Make, scheme: str, parameters: dict[str, Any]
) -> None:
    of = models()
    with paceline.join(of, make(of), scheme=scheme, **parameters) as pace:
        train(pace, of)
    assert_same(of, plain(make))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("make", [adams, rmsprops, unlike])
def test_where_the_worker_makes_the_steps_it_does_so_bit_for_bit(make: Make) -> None:
    of, wanted = models(), plain(make)
    with paceline.join(of, make(of), scheme="bsp") as pace:
        train(pace, of)
    for name in wanted:
        for p, q in zip(of[name].parameters(), wanted[name].parameters(), strict=True):
            assert torch.equal(p, q)


@pytest.mark.parametrize("servers", [0, 1, 2])
@pytest.mark.parametrize("make", [adams, unlike])
def test_two_workers_of_bsp_train_what_one_process_with_both_batches_would(
    make: Make, servers: int, tmp_path: Path
) -> None:
    more = {"updates": "workers"} if make is unlike else {}
    _, found = run(tmp_path, "bsp", lambda pace, of: train(pace, of, 2), make, workers=2, servers=servers, **more)
    for of in found.values():
        assert_same(of, plain(make, 2))


@pytest.mark.usefixtures("alone")
def test_by_drop_in_optimizers_the_steps_of_the_script_stay_as_they_are() -> None:
    of = models()
    with paceline.join(of, adams(of), scheme="asp") as pace:
        optimizers = pace.optimizers
        for x, z in batches():
            for name, loss in (("D", of_discriminator), ("G", of_generator)):
                optimizers[name].zero_grad()
                loss(of, x, z).backward()
                optimizers[name].step()
        with pytest.raises(ConfigError, match=r"several optimizers: pace.optimizers\[...\], of D, G"):
            _ = pace.optimizer
    assert_same(of, plain(adams))


@pytest.mark.usefixtures("alone")
def test_a_step_of_all_trains_all_and_calls_of_zero_grad_may_be_left_out() -> None:
    """An autoencoder of two models: one loss, one step. A step of one leaves no gradient behind for another."""
    of, wanted = models(), models()
    optimizers = adams(wanted)
    for x, z in batches():
        for optimizer in optimizers.values():
            optimizer.zero_grad()
        of_generator(wanted, x, z).backward()
        for optimizer in optimizers.values():
            optimizer.step()
        wanted["D"].zero_grad()
        of_discriminator(wanted, x, z).backward()
        optimizers["D"].step()
    with paceline.join(of, adams(of), scheme="bsp") as pace:
        for x, z in batches():
            of_generator(of, x, z).backward()
            pace.step()
            of_discriminator(of, x, z).backward()
            pace.step("D")
    assert_same(of, wanted)


@pytest.mark.usefixtures("alone")
def test_only_a_part_is_shared_and_the_rest_stays_the_scripts_own() -> None:
    of, wanted = models(), plain(adams)
    optimizers = adams(of)
    with paceline.join({"D": of["D"]}, {"D": optimizers["D"]}, scheme="asp") as pace:
        for x, z in batches():
            of["D"].zero_grad()
            of_discriminator(of, x, z).backward()
            pace.step("D", len(x))
            of["G"].zero_grad()
            of_generator(of, x, z).backward()
            optimizers["G"].step()
    assert_same(of, wanted)


# ---- samples -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheme", ["bsp", "asp", "localsgd"])
def test_a_batch_is_trained_once_though_two_models_make_a_step_of_it(scheme: str, tmp_path: Path) -> None:
    now: list[int] = []

    def loop(pace: Pace, of: Any) -> None:
        for x, _ in pace.batches(toy_data(), BATCH, epochs=None):
            for name, loss in (("D", of_discriminator), ("G", of_generator)):
                loss(of, x, NOISE[: len(x)]).backward()
                pace.step(name)
        now.append(pace.steps)

    summary, _ = run(tmp_path, scheme, loop, adams, workers=2, stop={"epochs": 3.0})
    assert summary.samples == 3 * len(X)
    assert sum(worker.steps for worker in summary.workers) >= 2 * 3 * len(X) // BATCH


# ---- mistakes ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("scheme", "parameters", "words"),
    [
        ("ksync", {}, "ksync would mix steps of several models"),
        ("gsp", {}, "gsp would mix steps"),
        ("lbbsp", {}, "lbbsp would mix steps"),
        ("hybrid", {"phases": "ksync until 10 steps; asp"}, "hybrid would mix steps"),
        ("eamsgd", {}, "eamsgd moves what a step does not train"),
        ("asp", {"steps": 2}, "asp.steps would add gradients of several models up: leave it at 1"),
        ("asp", {"codec": "topk"}, "a codec keeps back parts"),
    ],
)
def test_schemes_that_cannot_train_one_of_several_are_refused(
    scheme: str, parameters: dict[str, Any], words: str
) -> None:
    of = models()
    with pytest.raises(ConfigError, match=words):
        paceline.join(of, adams(of), scheme=scheme, **parameters)


@pytest.mark.usefixtures("alone")
def test_optimizers_of_two_classes_are_for_schemes_whose_workers_make_the_steps() -> None:
    of = models()
    with pytest.raises(ConfigError, match=r"asp: servers cannot make the steps of SGD of D and AdamW of G"):
        paceline.join(of, unlike(of), scheme="asp")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda of: (of, {"D": adams(of)["D"]}), "give one optimizer for each model, by the same names"),
        (lambda of: (of, adams(of)["D"]), "several models need an optimizer each"),
        (lambda of: (of, {"D": adams(of)["G"], "G": adams(of)["D"]}), "optimizer of D holds a parameter that is not"),
        (
            lambda of: ({"D": of["D"], "G": of["D"]}, {"D": adams(of)["D"], "G": adams(of)["D"]}),
            "optimizers of D and G",
        ),
        (lambda of: ({"a.b": of["D"]}, {"a.b": adams(of)["D"]}), "give them other names"),
        (lambda of: (of, {"D": "my:make", "G": "my:make"}), "give an optimizer itself"),
    ],
)
def test_models_and_optimizers_that_do_not_go_together_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        paceline.join(*given(models()))


@pytest.mark.usefixtures("alone")
def test_a_model_that_is_not_there_and_a_gradient_that_is_gone_are_said() -> None:
    of = models()
    with paceline.join(of, adams(of), scheme="asp") as pace:
        with pytest.raises(ConfigError, match=r"pace.step\('d'\): the models of this run are 'D', 'G'"):
            pace.step("d", 9)
        of_generator(of, X[:9], NOISE[:9]).backward()
        pace.step("G", 9)
        with pytest.warns(UserWarning, match="a step clears those of all models; one step of all is pace.step"):
            pace.step("D", 9)
    model = models()["D"]
    with (
        paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as pace,
        pytest.raises(ConfigError, match="was given one model"),
    ):
        pace.step("D")
