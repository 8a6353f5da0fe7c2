"""Several models and optimizers in one loop: a GAN trains as it does alone, and two workers as one process would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import paceline
from paceline.core.errors import ConfigError
from paceline.runtime.worker.pace import Pace
from tests.runtime.worker.gan import (
    Make,
    Models,
    Optimizers,
    adams,
    assert_same,
    batches,
    models,
    of_discriminator,
    of_generator,
    run,
)


def rmsprops(of: Any) -> Optimizers:
    return {name: torch.optim.RMSprop(of[name].parameters(), lr=0.01) for name in "DG"}


def unlike(of: Any) -> Optimizers:
    """Two classes, which no server can be told of in one."""
    momentum = torch.optim.SGD(of["D"].parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    return {"D": momentum, "G": torch.optim.AdamW(of["G"].parameters(), lr=0.02)}


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
