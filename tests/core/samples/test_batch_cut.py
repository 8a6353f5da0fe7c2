"""No mini-batch of a single sample is left for the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.samples.batch_cut import batch_of


def cut(samples: int, batch: int) -> list[int]:
    sizes = []
    while samples:
        sizes.append(batch_of(samples, batch))
        samples -= sizes[-1]
    return sizes


@given(st.integers(2, 200), st.integers(2, 40))
def test_no_batch_has_one_sample_and_none_is_too_long(samples: int, batch: int) -> None:
    sizes = cut(samples, batch)
    assert sum(sizes) == samples
    assert min(sizes) > 1
    assert max(sizes) <= max(batch, 3)
    assert len(sizes) == (samples // 2 if batch == 2 else -(-samples // batch)), "as many steps as without"


def test_batches_of_one_and_a_single_sample_stay_what_they_are() -> None:
    assert cut(3, 1) == [1, 1, 1]
    assert cut(1, 16) == [1]
    assert cut(33, 16) == [16, 15, 2]
