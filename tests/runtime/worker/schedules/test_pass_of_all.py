"""What a worker's batches are of those of the plain loop."""

from __future__ import annotations

import pytest

from paceline.runtime.worker.schedules.pass_of_all import PassOfAll


@pytest.mark.parametrize("samples", [1, 7, 64, 90, 97])
@pytest.mark.parametrize("size", [1, 8, 16, 100])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_pass_of_all_workers_is_as_many_batches_as_the_loader_has(samples: int, size: int, workers: int) -> None:
    """However it is cut: in short batches at the end of each share, or in a scheme's sizes."""
    total = 0.0
    for rank in range(workers):
        passes = PassOfAll(0, 0.0)
        part = passes.begin(samples, size, epochs=1)
        left = len(range(rank, samples, workers))
        batches = 0
        while left:
            passes.handed_out(min(size, left) * part)
            left -= min(size, left)
            batches += 1
        total += batches * passes.fullness
    assert total == pytest.approx(-(-samples // size))


def test_the_end_of_a_pass_is_known_before_others_have_reported_it() -> None:
    passes = PassOfAll(0, 0.0)
    passes.begin(90, 8, epochs=2)
    assert passes.samples == 0
    passes.end(90, epochs=2)
    passes.end(90, epochs=1)
    assert passes.samples == 270


@pytest.mark.parametrize(("samples_max", "epochs_max"), [(150, 0.0), (0, 1.5), (150, 1.8)])
def test_no_more_is_counted_than_the_run_trains(samples_max: int, epochs_max: float) -> None:
    limit = samples_max or 135
    for epochs in (2, None):
        passes = PassOfAll(samples_max, epochs_max)
        passes.begin(90, 8, epochs=epochs)
        passes.end(90, epochs=epochs)
        assert passes.samples == limit


@pytest.mark.parametrize(
    ("run", "epochs", "bounded"), [((0, 0.0), None, False), ((0, 0.0), 1, True), ((9, 0.0), None, True)]
)
def test_batches_without_end_are_bounded_by_the_run_alone(
    run: tuple[int, float], epochs: int | None, bounded: bool
) -> None:
    passes = PassOfAll(*run)
    passes.begin(90, 8, epochs)
    assert passes.bounded == bounded


def test_items_that_are_batches_count_as_those() -> None:
    passes = PassOfAll(0, 0.0)
    passes.handed_out(passes.begin(0, None, epochs=1))
    assert passes.fullness == 1
    streamed = PassOfAll(0, 0.0)
    streamed.handed_out(4 * streamed.begin(0, 8, epochs=1))
    assert streamed.fullness == 0.5
