import numpy as np
import pytest

from paceline.core.effects import SERVERS, Call, Compute, Computed, Train, Trained
from paceline.core.errors import ConfigError
from paceline.core.paramserver.gated_server import Push, Weights
from paceline.core.role import RoleContext
from paceline.core.scheme import make
from paceline.sim import LocalSteps, Simulation, plain_sgd
from tests.role_driver import ByHand, server

GOAL = np.arange(6.0)


def asked(**parameters: object) -> tuple[object, object]:
    """What an ASP worker asks to be done with w = 3, and what it pushes when that gave 5 from 8 samples."""
    scheme = make("asp", dict(parameters))
    worker = scheme.worker(1)(scheme, RoleContext(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    run = worker.run()
    run.send(None)
    work = run.send(Weights(w=3.0, version=0))
    return work, run.send(Computed(5.0, 8, 0.1) if isinstance(work, Compute) else Trained(5.0, 8, 0.1))


def test_a_worker_works_so_many_steps_and_pushes_what_the_payload_says() -> None:
    assert asked(steps=4) == (Compute(3.0, 4), Call(SERVERS, Push(g=5.0, clock=1, samples=8)))
    assert asked(steps=4, payload="delta") == (Train(3.0, 4), Call(SERVERS, Push(g=2.0, clock=1, samples=8)))
    assert asked(payload="weights", memory="reset") == (
        Train(3.0, 1, memory="reset"), Call(SERVERS, Push(g=5.0, clock=1, samples=8))
    )  # fmt: skip


def test_whether_a_scheme_trains_locally_depends_on_the_payload() -> None:
    assert [make("asp", {"payload": p}).trains_locally for p in ("gradient", "delta", "weights")] == [False, True, True]


def test_a_delta_is_added_past_the_servers_optimizer() -> None:
    def refuse(w: object, g: object, samples: int) -> object:
        raise AssertionError("the optimizer is the worker's")

    asp = server("asp", payload="delta", factor=4.0, weighting="inverse", place={"update": refuse})
    asp.push(0, clock=1, g=8.0)
    asp.push(1, clock=1, g=8.0)
    assert asp.role.w == [2.0 + 2.0 / 2]


def test_with_weights_both_sides_move_by_the_same() -> None:
    asp = server("asp", payload="weights", alpha=0.25)

    def send(src: int, x: float, clock: int) -> float:
        return asp.on(src, Push(g=np.array([x]), clock=clock, samples=1))[src].w[0]

    assert (send(0, 8.0, 1), asp.role.w[0]) == (6.0, 2.0)
    assert (send(1, -2.0, 1), asp.role.w[0]) == (-1.0, 1.0)
    assert asp.pull(0)[0].w == [6.0], "each worker has weights of its own"


@pytest.mark.parametrize("servers", [0, 1, 2])
def test_one_local_step_of_plain_sgd_is_the_gradient(servers: int) -> None:
    """So a round of deltas is a round of gradients, as long as a push is one step."""

    def model(steps: int, payload: str) -> np.ndarray:
        work = LocalSteps(lambda rank, rng: 1.0 + rank, lambda rank, w: (w - GOAL) * (1 + rank), lr=0.1)
        scheme = make("bsp", {"payload": payload, "steps": steps})
        sgd = plain_sgd(0.1)
        return (
            Simulation(scheme, np.zeros(6), work, workers=3, servers=servers, update_factory=sgd).run(until=60).model()
        )

    np.testing.assert_allclose(model(1, "gradient"), model(1, "delta"), rtol=1e-12)
    assert (np.abs(model(3, "delta") - GOAL) < np.abs(model(3, "gradient") - GOAL)).all(where=GOAL > 0)


def test_workers_that_wait_for_one_another_have_no_elastic_weights() -> None:
    with pytest.raises(ConfigError, match="must be one of gradient, delta"):
        make("bsp", {"payload": "weights"})


def test_a_restarted_worker_hands_the_very_same_push_over_again() -> None:
    scheme = make("asp", {})
    worker = scheme.worker(1)(scheme, RoleContext(me=0, workers=(0,), w=None, update=lambda w, g, samples: w))
    run = worker.run()
    run.send(None)
    run.send(Weights(w=3.0, version=0))
    first = run.send(Computed(5.0, 8, 0.1))
    run.close()
    assert next(worker.run()) == first


def test_a_newcomer_goes_on_from_the_clock_of_the_slowest_whatever_it_counts_from() -> None:
    ssp: ByHand = server("ssp", workers=2, staleness=3)
    for clock in (1, 2, 3):
        ssp.push(0, clock)
        ssp.push(1, clock)
    ssp.gone(1)
    assert list(ssp.role.on_worker_joined(0.0, 1)) == []
    assert set(ssp.push(1, clock=1)) == {1}
    assert ssp.role.clocks[1] == 4
    assert ssp.push(1, clock=1)[1].version == 7, "a repeat changes nothing"
    assert len(ssp.updates()) == 7
