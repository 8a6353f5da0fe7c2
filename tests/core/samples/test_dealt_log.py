"""What a worker was dealt: the first samples of it, for a checkpoint."""

from __future__ import annotations

from paceline.core.samples.dealt_log import EPOCHS_LOGGED, DealtLog


def test_a_log_has_the_first_samples_in_their_order_and_forgets_old_epochs() -> None:
    log = DealtLog()
    for piece in [(0, 0, 3), (0, 3, 5), (0, 9, 10), (1, 0, 4)]:
        log.add(*piece)
    assert log.first(0) == []
    assert log.first(4) == [(0, 0, 4, 0)]
    assert log.first(8) == [(0, 0, 5, 0), (0, 9, 10, 0), (1, 0, 2, 0)]
    log.add(EPOCHS_LOGGED, 2, 4)
    assert log.first(11) == [(1, 0, 4, 0), (EPOCHS_LOGGED, 2, 3, 0)]


def test_pieces_of_several_shares_stay_several() -> None:
    log = DealtLog()
    for start, share in [(4, 1), (6, 1), (8, 2), (10, 1)]:
        log.add(0, start, start + 2, share)
    assert log.first(8) == [(0, 4, 8, 1), (0, 8, 10, 2), (0, 10, 12, 1)]
