"""Decoupled DiLoCo Team, Decoupled DiLoCo for Resilient Distributed Pre-training (2026)."""

from typing import Any

import numpy as np
import pytest
import torch

from paceline.core.effects import Effect, Start
from paceline.core.scheme import make
from paceline.engine.vectors.flat import Flat
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.schemes import decoupled
from paceline.schemes.decoupled import Decoupled, LearnerFragment
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Host
from tests.conformance.schemes_table import watched
from tests.papers.sentences import says
from tests.role_driver import ByHand
from tests.runtime.simulated.virtual_runs import setting


def fragment(delta: float, turn: int, clock: int, tokens: int, steps: int) -> LearnerFragment:
    counters = {"samples": tokens, "tokens": tokens, "steps": steps, "speed": 1.0}
    return LearnerFragment(delta=np.array([delta]), offset=0, series=0, turn=turn, clock=clock, **counters)


def synchroniser(workers: int, **parameters: Any) -> ByHand:
    scheme = make("decoupled", {"h": 8, "fragments": 1, **parameters})
    return ByHand(Decoupled.Server, scheme, workers)


def test_merging_is_weighted_by_tokens_and_tokens_a_step() -> None:
    """ "w_m <- c_tokens (c_tokens / c_steps)" """
    assert says(decoupled, "w_m <- c_tokens (c_tokens / c_steps)")
    s = synchroniser(2, outer_lr=1.0, outer_momentum=0.0)
    s.on(0, fragment(1.0, 0, 1, tokens=64, steps=8))  # 64 * 8 = 512
    s.on(1, fragment(9.0, 0, 1, tokens=16, steps=2))  # 16 * 8 = 128
    assert s.role.w == pytest.approx([-(512 * 1 + 128 * 9) / 640])


def test_the_outer_optimizer_is_nesterov_momentum() -> None:
    """ "v_p <- mu v_p + Delta_p; Theta_p <- Theta_p - lr (Delta_p + mu v_p)" """
    assert says(decoupled, "v_p <- mu v_p + Delta_p; Theta_p <- Theta_p - lr (Delta_p + mu v_p)")
    s, w, v = synchroniser(1), 0.0, 0.0
    for turn in range(5):
        s.on(0, fragment(0.5, turn, turn + 1, tokens=8, steps=8))
        v = 0.5 * v + 0.5
        w -= 0.7 * (0.5 + 0.5 * v)
    assert s.role.w == pytest.approx([w])


def test_one_learner_is_a_quorum_so_the_others_may_fail() -> None:
    """ "a synchroniser merges each fragment of the model from those that are there" """
    assert says(decoupled, "a synchroniser merges each fragment of the model from those that are there")
    work = LocalSteps(lambda rank, rng: 1.0, lambda rank, w: w - 1.0, lr=0.3)
    sim = Simulation(make("decoupled", {"h": 6, "fragments": 2}), np.zeros(6), work, workers=4, servers=2)
    sim.run(until=10)
    for rank in (1, 2, 3):
        sim.crash(rank)
    assert sim.run(until=150).model() == pytest.approx(np.ones(6), abs=1e-3)


def test_a_fragment_is_all_that_travels_and_all_are_of_about_equal_length() -> None:
    """ "P runs of consecutive parameters of equal length" """
    assert says(decoupled, "P runs of consecutive parameters of equal length")
    lengths = []

    def see(effect: Effect) -> None:
        if isinstance(effect, Start):
            lengths.append(len(effect.effect.message.delta))  # type: ignore[union-attr]

    scheme = make("decoupled", {"h": 9, "fragments": 3})
    sim = Simulation(scheme, np.zeros(10), LocalSteps(lambda rank, rng: 1.0), workers=1, servers=3)
    role = sim.worker(0)
    original = role.run
    role.run = lambda: watched(original(), see)  # type: ignore[method-assign]
    sim.restart(0)
    sim.run(until=19)
    assert lengths == [3, 3, 4, 3, 3, 4]


def worst_of_the_second_half(momentum: float) -> float:
    """Returns the lowest accuracy of a model of the synchroniser on three learners whose steps differ wildly."""
    devices = [Device(factor=factor, jitter=jitter) for factor, jitter in ((2, 2), (5, 1), (1, 0.3))]
    hosts = [Host(name=f"learner-{rank}", devices=(device,)) for rank, device in enumerate(devices)]
    cluster = Cluster(hosts=(*hosts, Host(name="server", servers=1)), step_s=0.001)
    more = {"model": {"name": "mlp", "width": 1.0}, "optimizer": {"lr": 0.2}, "run": {"scheme": "decoupled", "seed": 3}}
    stop = {"epochs": 0.0, "steps": 240}
    run = VirtualRun(setting(cluster=cluster, stop=stop, decoupled={"outer_momentum": momentum}, **more), Silent())
    server, judge, found = run.simulation.server(0), run._judge, []
    assert judge is not None
    made = server.made

    def seen(*about: Any) -> None:
        made(*about)
        if server.version % 4 == 0:  # every fourth: an evaluation costs more than an update
            found.append(judge.look(0.0, 0, server.w, Flat(torch.zeros(0))).accuracy)

    server.made = seen  # type: ignore[attr-defined]
    run.run(leave=False)
    return float(min(found[len(found) // 2 :]))


def test_with_less_outer_momentum_stalls_do_not_make_the_model_swing() -> None:
    """ "stalls can make the model swing with DiLoCo's mu = 0.9. So the default is 0.5" """
    assert says(decoupled, "stalls can make the model swing with DiLoCo's mu = 0.9. So the default is 0.5")
    calm, swinging = worst_of_the_second_half(0.5), worst_of_the_second_half(0.9)
    assert calm > 0.94
    assert swinging < calm - 0.02
