"""Every optimizer, live and simulated, equals its formula written out for one tensor at a time.

The formulas here share no code with `paceline.engine`. Tensors are of unlike sizes, and with three servers the model is
cut between them, so a norm that is taken over a slice or over the whole model where it belongs to a tensor is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.config import Config
from paceline.engine.data.batches import Batches
from paceline.engine.data.partition_plan import make_partition
from paceline.launch.local.train import Silent
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.runtime.worker.train_loop import build_model, load_data
from paceline.sim.cluster.model import NetworkSpec
from tests.runtime.conftest import Runner
from tests.runtime.one_process import Weights, assert_same, config_for, saved

STEPS = 8
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.1, "weight_decay": 0.01},
    "momentum": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
    "nesterov": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"name": "adam", "lr": 0.002, "weight_decay": 0.01, "eps": 1e-4},
    "adamw": {"name": "adamw", "lr": 0.002, "weight_decay": 0.1, "eps": 1e-4},
    "lars": {"name": "lars", "lr": 2.0, "momentum": 0.9, "weight_decay": 0.01, "trust": 0.02},
    "lamb": {"name": "lamb", "lr": 0.01, "weight_decay": 0.1, "eps": 1e-4},
}
CLIPS = {"whole": 0.0, "clipped": 0.3}
SERVERS = (0, 1, 3)

State = dict[str, Tensor]
Formula = Callable[[Tensor, Tensor, State, int, Any], Tensor]


def sgd(w: Tensor, g: Tensor, state: State, t: int, o: Any) -> Tensor:
    """Sutskever et al. 2013, as torch has it: the rate is outside of the momentum."""
    d = g + o.weight_decay * w
    v = state["v"] = o.momentum * state["v"] + d if "v" in state else d
    return w - o.lr * (d + o.momentum * v if o.nesterov else v)


def adam_step(g: Tensor, state: State, t: int, o: Any) -> Tensor:
    m = state["m"] = o.beta1 * state.get("m", torch.zeros_like(g)) + (1 - o.beta1) * g
    v = state["v"] = o.beta2 * state.get("v", torch.zeros_like(g)) + (1 - o.beta2) * g * g
    return (m / (1 - o.beta1**t)) / ((v / (1 - o.beta2**t)).sqrt() + o.eps)


def adam(w: Tensor, g: Tensor, state: State, t: int, o: Any) -> Tensor:
    """Kingma and Ba 2015; the decay is part of the gradient."""
    return w - o.lr * adam_step(g + o.weight_decay * w, state, t, o)


def adamw(w: Tensor, g: Tensor, state: State, t: int, o: Any) -> Tensor:
    """Loshchilov and Hutter 2019; the decay is beside the step."""
    return w - o.lr * o.weight_decay * w - o.lr * adam_step(g, state, t, o)


def lars(w: Tensor, g: Tensor, state: State, t: int, o: Any) -> Tensor:
    """You, Gitman, Ginsburg 2017, algorithm 1."""
    ws, gs = float(w.square().sum().sqrt()), float(g.square().sum().sqrt())
    rate = o.trust * ws / (gs + o.weight_decay * ws) if ws and gs else 1.0
    v = o.momentum * state.get("v", torch.zeros_like(w)) + o.lr * rate * (g + o.weight_decay * w)
    state["v"] = v
    return w - v


def lamb(w: Tensor, g: Tensor, state: State, t: int, o: Any) -> Tensor:
    """You et al. 2020, algorithm 2."""
    r = adam_step(g, state, t, o) + o.weight_decay * w
    ws, rs = float(w.square().sum().sqrt()), float(r.square().sum().sqrt())
    return w - o.lr * (ws / rs if ws and rs else 1.0) * r


FORMULAS: dict[str, Formula] = {"sgd": sgd, "adam": adam, "adamw": adamw, "lars": lars, "lamb": lamb}


def by_the_formulas(config: Config) -> Weights:
    """Updates with the mean gradient of all workers' samples, one tensor at a time."""
    splits, o = load_data(config), config.optimizer
    model = build_model(config, splits)
    n, workers = len(splits.train), config.cluster.workers
    shares = make_partition(config.data.partition, n, workers, splits.train.y.numpy(), config.run.seed)
    streams = [Batches(splits.train, shares, rank, config.data.batch_size) for rank in range(workers)]
    parameters = list(model.parameters())
    states: list[State] = [{} for _ in parameters]
    for t in range(1, 1 + config.stop.steps):
        batches = [next(stream) for stream in streams]
        x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
        gradients = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), parameters)
        whole = float(sum(g.double().square().sum() for g in gradients)) ** 0.5
        factor = min(1.0, o.clip_norm / (whole + 1e-6)) if o.clip_norm else 1.0
        assert factor < 1 or not o.clip_norm, "the clip is to be felt"
        with torch.no_grad():
            for p, g, state in zip(parameters, gradients, states, strict=True):
                p.copy_(FORMULAS[o.name](p, g * factor, state, t, o))
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


def simulated(config: Config) -> None:
    network = NetworkSpec(latency_s=1e-4, bandwidth_gbps=10.0)
    VirtualRun(SimulationSetup(config=config, cluster=cluster_of(config, network, lambda: 0.01)), Silent()).run()


@pytest.fixture(params=["live", "simulated"])
def driver(request: pytest.FixtureRequest) -> Callable[[Config], Any]:
    if request.param == "simulated":
        return simulated
    run: Runner = request.getfixturevalue("threads")
    return run


def check(driver: Callable[[Config], Any], out: Path, name: str, clip: str, **settings: Any) -> None:
    optimizer = {**OPTIMIZERS[name], "clip_norm": CLIPS[clip]}
    config = config_for(out, steps=STEPS, optimizer=optimizer, **settings)
    driver(config)
    assert_same(saved(config), by_the_formulas(config))


@pytest.mark.parametrize("servers", SERVERS)
@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_mean_gradient_of_all_workers_makes_the_papers_step(
    driver: Callable[[Config], Any], out: Path, name: str, clip: str, servers: int
) -> None:
    check(driver, out, name, clip, servers=servers, workers=2)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_that_a_worker_makes_itself_are_the_papers(
    driver: Callable[[Config], Any], out: Path, name: str, clip: str
) -> None:

    check(driver, out, name, clip, servers=3, workers=1, scheme="localsgd", localsgd={"tau": 1})
