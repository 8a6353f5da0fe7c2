"""SparseLoCo: local SGD with a rate, and the codec that its parameters make."""

from typing import Any

import numpy as np
import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.codec import read
from paceline.codec.pipeline.policy import Codecs
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation

GOALS = np.array([[1.0, 0.0], [5.0, 2.0]])


def run(name: str, rounds: int, **parameters: Any) -> Any:
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - GOALS[rank], lr=0.1)
    sim = Simulation(make(name, parameters), np.zeros(2), work, workers=2, servers=1)
    return sim.run(stop=lambda sim: min(sim.worker(r).round for r in (0, 1)) == rounds).model()


def test_without_its_codec_and_with_alpha_one_it_is_local_sgd() -> None:
    assert run("sparseloco", 5, h=3) == pytest.approx(run("localsgd", 5, tau=3))


def test_alpha_is_the_rate_of_the_outer_step() -> None:
    assert run("sparseloco", 1, h=3, alpha=0.5) == pytest.approx(run("localsgd", 1, tau=3) / 2)


def test_its_parameters_make_the_codec_and_another_codec_takes_its_place() -> None:
    scheme = make("sparseloco", {"density": 0.01, "beta": 0.9})
    codec = read(Codecs().or_that_of(scheme).up)
    assert codec is not None
    assert (codec.name, codec.parameters()) == ("sparse2bit", {"ratio": 0.01, "decay": 0.9})
    assert Codecs(up="fp16").or_that_of(scheme).up == "fp16"
    assert not Codecs().or_that_of(make("localsgd", {})).any
