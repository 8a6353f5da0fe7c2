from paceline.core.effects import Piece
from paceline.core.samples.lease_in_use import LeaseInUse


def test_a_lease_is_used_up_before_the_next_one_is_asked_for() -> None:
    leases: list[Piece | None] = [(0, 10, 15), (1, 0, 2), None]
    in_use = LeaseInUse()
    taken = [in_use.take(2, lambda: leases.pop(0)) for _ in range(4)]
    assert taken == [(0, 10, 12), (0, 12, 14), (0, 14, 15), (1, 0, 2)]
    assert in_use.rest is None
    assert in_use.take(2, lambda: leases.pop(0)) is None


def test_what_is_left_is_known() -> None:
    in_use = LeaseInUse()
    in_use.take(3, lambda: (4, 0, 8))
    assert in_use.rest == (4, 3, 8)
