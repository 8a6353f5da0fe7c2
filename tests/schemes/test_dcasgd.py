import numpy as np
import pytest

from paceline.core.paramserver.gated_server import Push
from paceline.core.vector import Ghost
from tests.role_driver import ByHand, server

G = np.array([2.0, -1.0])


def push(dcasgd: ByHand, src: int, clock: int, g: np.ndarray = G) -> None:
    dcasgd.on(src, Push(g=g, clock=clock, samples=1))


def start(**parameters: object) -> ByHand:
    return server("dcasgd", place={"w": np.zeros(2)}, **parameters)


def test_a_late_gradient_is_corrected_by_how_far_the_weights_have_moved() -> None:
    dcasgd = start(lam=0.5)
    push(dcasgd, 0, 1)
    push(dcasgd, 0, 2)
    assert (dcasgd.role.w == -2 * G).all(), "a fresh gradient is taken as it is"
    push(dcasgd, 1, 1)
    assert (dcasgd.role.w == -2 * G - (G + 0.5 * G * G * (-2 * G))).all()


def test_every_worker_has_a_backup_of_its_own() -> None:
    dcasgd = start(lam=1.0)
    push(dcasgd, 0, 1)
    push(dcasgd, 1, 1)
    w = dcasgd.role.w
    push(dcasgd, 1, 2)
    assert (dcasgd.role.w == w - G).all(), "worker 1 was answered with the latest weights"


def test_the_adaptive_strength_falls_with_the_mean_square_of_the_gradients() -> None:
    dcasgd, m = start(variant="adaptive", lam=2.0, m=0.9), 0.9
    push(dcasgd, 0, 1)
    push(dcasgd, 1, 1)
    mean_square = m * (1 - m) * G * G + (1 - m) * G * G
    expected = -G - (G + 2.0 / np.sqrt(mean_square + 1e-7) * G * G * (-G))
    np.testing.assert_allclose(dcasgd.role.w, expected, rtol=1e-12)


def test_the_mxnet_variant_compensates_the_last_update_only_and_for_whomever() -> None:
    dcasgd = start(variant="mxnet", lam=0.5)
    push(dcasgd, 0, 1)
    w = dcasgd.role.w
    push(dcasgd, 0, 2)
    assert (dcasgd.role.w == w - (G + 0.5 * G * G * (w - 0))).all(), "though this gradient is fresh"


@pytest.mark.parametrize("variant", ["constant", "adaptive", "mxnet"])
def test_without_strength_it_is_asynchronous_sgd(variant: str) -> None:
    dcasgd, asp = start(variant=variant, lam=0.0), server("asp", place={"w": np.zeros(2)})
    for by_hand in (dcasgd, asp):
        for src, clock in ((0, 1), (0, 2), (1, 1), (0, 3), (1, 2)):
            push(by_hand, src, clock)
    assert (dcasgd.role.w == asp.role.w).all()


def test_it_runs_without_numbers_and_forgets_leavers() -> None:
    dcasgd = server("dcasgd", place={"w": Ghost(8), "update": lambda w, g, samples: w}, variant="adaptive")
    push(dcasgd, 0, 1, Ghost(8))
    dcasgd.gone(0)
    assert set(dcasgd.role.w_bak) == {1}
