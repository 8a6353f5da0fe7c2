"""When an epoch may count as whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.effects import Piece
from paceline.core.samples.sample_leases import APPLIED, REFUSED, Leases
from paceline.sim.checking.oracles.samples import Samples


def recount(*done: Piece) -> Any:
    return SimpleNamespace(done=[(piece,) for piece in done], open={})


def counting(*settled: tuple[str, int, int]) -> Leases:
    """A queue of 10 samples an epoch, of which worker 0 has two epochs, and these fates and pieces of the first."""
    leases = Leases(10, 10)
    for epoch in range(2):
        assert leases.take(0, 0) == (epoch, 0, 10)
    for fate, start, stop in settled:
        leases.settled(0, fate, ((0, start, stop),))
    return leases


def test_an_epoch_is_whole_once_each_sample_was_in_an_update() -> None:
    samples = Samples(AssertionError)
    samples.counted(counting((APPLIED, 0, 9)), recount((0, 0, 9)))
    samples.counted(counting((APPLIED, 0, 9), (APPLIED, 9, 10)), recount((0, 0, 9), (0, 9, 10)))


def test_an_epoch_that_is_counted_one_sample_early_is_seen() -> None:
    whole = counting((APPLIED, 0, 10))
    with pytest.raises(AssertionError, match="epoch 0 counts as whole, and its sample 9 was in no update yet"):
        Samples(AssertionError).counted(whole, recount((0, 0, 9), (1, 0, 10)))


def test_updates_that_a_lost_server_made_count_and_so_do_samples_that_are_left_out() -> None:
    samples = Samples(AssertionError)
    samples.replaced(recount((0, 0, 6)))
    samples.counted(counting((APPLIED, 0, 10)), recount((0, 4, 10)))
    left_out = counting((APPLIED, 0, 9), (REFUSED, 9, 10))
    assert left_out.take(1, 0) == (0, 9, 10)
    left_out.settled(1, REFUSED, ((0, 9, 10),))
    assert left_out.epochs == 1
    Samples(AssertionError).counted(left_out, recount((0, 0, 9)))


@pytest.mark.parametrize(("epochs", "whole"), [(1, 0), (0, 1)])
def test_at_the_end_so_many_epochs_count_as_are_whole(epochs: int, whole: int) -> None:
    samples, stop = Samples(AssertionError), 10 if whole else 9
    leases: Any = SimpleNamespace(
        samples=10, epochs=epochs, account=lambda at: SimpleNamespace(done=stop, twice=0, epochs=epochs, left_out=0)
    )
    samples.given((0, 0, stop))
    with pytest.raises(AssertionError, match=f"{epochs} epochs count as whole; {whole} are"):
        samples.all_is_accounted_for(leases, recount((0, 0, stop)), ((0, 0, stop),))


def test_a_sample_in_two_updates_is_found() -> None:
    samples = Samples(AssertionError)
    samples.given((0, 0, 10))
    leases: Any = SimpleNamespace(
        samples=10, account=lambda at: SimpleNamespace(done=10, twice=5, epochs=1, left_out=0)
    )
    with pytest.raises(AssertionError, match=r"sample \(0, 5\) is in 2 updates of the model"):
        samples.all_is_accounted_for(leases, recount((0, 0, 10), (0, 5, 10)), ((0, 0, 10),))
