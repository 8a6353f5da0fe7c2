import json
from collections.abc import Iterable

import numpy as np
import pytest

from paceline.core.effects import Data
from paceline.core.paramserver.clocks import among_others
from paceline.core.paramserver.gated_server import ClockedServer, settles, some
from paceline.core.paramserver.gradient_check import REJECT, GradientCheckPolicy
from paceline.core.scheme import make, names
from tests.role_driver import ByHand, server


class Pairs(ClockedServer):
    """Groups (0, 1) and (2,)."""

    def partition(self) -> Iterable[tuple[int, ...]]:
        return (0, 1), (2,)


def test_a_repeated_push_is_answered_and_applied_once() -> None:
    asp = server("asp")
    first = asp.push(0, clock=1)[0]
    again = asp.push(0, clock=1)[0]
    assert first.version == again.version == 1
    assert asp.role.w == [-1.0]
    assert len(asp.updates()) == 1


def test_a_push_repeated_inside_an_open_round_counts_once() -> None:
    bsp = server("bsp")
    assert bsp.push(0, clock=1, g=1.0) == {}
    assert bsp.push(0, clock=1, g=100.0) == {}
    assert bsp.pull(0) == {}, "a restarted worker waits for the round it has contributed to"
    assert set(bsp.push(1, clock=1, g=3.0)) == {0, 1}
    assert bsp.role.w == [-2.0]


def test_a_leaver_releases_those_who_wait_for_it() -> None:
    pairs = ByHand(Pairs, None, workers=3)
    assert pairs.push(0, clock=1) == {}
    answers = pairs.gone(1)
    assert set(answers) == {0}
    assert pairs.role.w == [-1.0]
    assert set(pairs.push(0, clock=2)) == {0}, "alone in its group now"


def test_what_a_leaver_contributed_counts() -> None:
    bsp = server("bsp")
    bsp.push(1, clock=1, g=3.0)
    assert bsp.gone(1) == {}
    assert set(bsp.push(0, clock=1, g=1.0)) == {0}
    assert bsp.role.w == [-2.0]


def test_leaving_twice_is_leaving_once() -> None:
    bsp = server("bsp")
    bsp.gone(1)
    assert bsp.gone(1) == {}
    assert set(bsp.push(0, clock=1)) == {0}


def test_groups_do_not_wait_for_one_another() -> None:
    pairs = ByHand(Pairs, None, workers=3)
    assert set(pairs.push(2, clock=1)) == {2}
    assert pairs.push(0, clock=1) == {}
    assert set(pairs.push(2, clock=2)) == {2}
    assert set(pairs.push(1, clock=1)) == {0, 1}
    assert [(u.ranks, u.staleness) for u in pairs.updates()] == [((2,), 0), ((2,), 0), ((0, 1), 2)]


def test_who_waits_is_told_for_whom_and_only_once() -> None:
    bsp = server("bsp", workers=3)
    bsp.push(1, clock=1)
    bsp.push(0, clock=1)
    assert bsp.decisions() == [
        (1, "wait", "waits for workers 0, 2"),
        (0, "wait", "waits for worker 2"),
    ]


def test_the_bound_is_the_reason_of_a_bounded_wait() -> None:
    ssp = server("ssp", staleness=0)
    ssp.push(1, clock=1)
    assert ssp.decisions() == [(1, "wait", "1 clock ahead of worker 0, bound 0")]


def test_what_is_too_late_is_dropped_and_the_reason_is_written() -> None:
    asp = server("asp", weighting="cutoff:1")
    asp.push(0, clock=1)
    assert set(asp.push(1, clock=1)) == {1}
    assert asp.decisions() == [(1, "dropped", "1 versions late")]
    assert [(u.weight, u.version) for u in asp.updates()] == [(1.0, 1), (0.0, 1)]
    assert asp.role.w == [-1.0]


def test_nobody_is_asked_for_reasons_when_nobody_listens() -> None:
    class Silent(ClockedServer):
        def may_go(self, rank: int) -> bool:
            return False

        def why_not(self, rank: int) -> str:
            raise AssertionError("a reason costs time")

    silent = ByHand(Silent, None, note=None)
    assert silent.push(0, clock=1) == {}


def test_the_optimizer_is_told_how_many_samples_are_behind_a_gradient() -> None:
    seen: list[int] = []

    def update(w: np.ndarray, g: np.ndarray, samples: int) -> np.ndarray:
        seen.append(samples)
        return w

    bsp = server("bsp", place={"update": update})
    bsp.push(0, clock=1, samples=3)
    bsp.push(1, clock=1, samples=5)
    assert seen == [8]


def test_what_nobody_expects_is_refused() -> None:
    with pytest.raises(TypeError, match="got str, which it does not take"):
        server("asp").on(0, "hello")


def test_ranks_are_listed_shortly() -> None:
    assert some([1]) == "worker 1"
    assert some([2, 1]) == "workers 1, 2"
    assert some(range(10)) == "workers 0, 1, 2 and 7 more"


# ---- leased samples ------------------------------------------------------------------------------------------
class Heard(list[tuple[int, str, Data]]):
    """What a server says became of leased samples."""

    def __call__(self, rank: int, fate: str, data: Data) -> None:
        self.append((rank, fate, data))


def test_a_server_tells_which_samples_came_into_an_update() -> None:
    heard = Heard()
    bsp = server("bsp", place={"settled": heard})
    bsp.push(0, clock=1, data=((0, 0, 8),))
    assert heard == []
    assert bsp.role.pending(0) == ((0, 0, 8),)
    bsp.push(1, clock=1, data=((0, 8, 16),))
    assert heard == [(0, "applied", ((0, 0, 8),)), (1, "applied", ((0, 8, 16),))]
    assert bsp.role.pending(0) == ()
    assert list(bsp.role.done) == [(0, 0, 16)]


def test_a_push_that_is_repeated_is_told_of_once() -> None:
    heard = Heard()
    asp = server("asp", place={"settled": heard})
    for _ in range(2):
        asp.push(0, clock=1, data=((0, 0, 8),))
    assert heard == [(0, "applied", ((0, 0, 8),))]


def test_samples_of_what_is_dropped_are_in_no_update() -> None:
    heard = Heard()
    asp = server("asp", place={"settled": heard}, weighting="cutoff:1")
    for clock in range(1, 4):
        asp.push(1, clock=clock, data=((0, 8 * clock, 8 * clock + 8),))
    asp.push(0, clock=1, data=((0, 0, 8),))
    assert heard[-1] == (0, "late", ((0, 0, 8),))
    assert list(asp.role.done) == [(0, 8, 32)]


def test_samples_that_the_gate_refuses_are_told_as_such() -> None:
    heard = Heard()
    gate = GradientCheckPolicy(mode=REJECT).gate(
        lambda v, w: float(np.linalg.norm(v)), 2, 0, lambda record: None, print
    )
    asp = server("asp", place={"settled": heard, "gate": gate})
    asp.push(0, clock=1, g=float("nan"), data=((0, 0, 8),))
    assert heard == [(0, "refused", ((0, 0, 8),))]


def test_what_is_rejected_in_an_open_round_counts_once_though_the_server_is_replaced() -> None:
    """Its worker waits for the round, and so pushes it again to whoever goes on from a copy."""
    heard = Heard()

    def bsp() -> ByHand:
        gate = GradientCheckPolicy().gate(lambda v, w: float(np.linalg.norm(v)), 2, 0, lambda record: None, print)
        return server("bsp", place={"settled": heard, "gate": gate})

    first, second = bsp(), bsp()
    assert first.push(0, clock=1, g=float("nan"), samples=8, data=((0, 0, 8),)) == {}
    assert heard == []
    assert first.role.pending(0) == ((0, 0, 8),)
    assert first.role.samples_waiting() == 8
    second.role.load_state_dict(json.loads(json.dumps(first.role.state_dict())))
    assert second.push(0, clock=1, g=float("nan"), samples=8, data=((0, 0, 8),)) == {}
    assert set(second.push(1, clock=1, samples=8, data=((0, 8, 16),))) == {0, 1}
    assert heard == [(0, "refused", ((0, 0, 8),)), (1, "applied", ((0, 8, 16),))]
    assert second.role.samples_seen == 16
    assert second.role.samples_waiting() == 0


def test_what_a_leaver_left_in_an_open_round_is_pending_until_that_closes() -> None:
    heard = Heard()
    bsp = server("bsp", workers=3, place={"settled": heard})
    bsp.push(2, clock=1, data=((0, 0, 4),))
    bsp.gone(2)
    assert bsp.role.pending(2) == ((0, 0, 4),)
    bsp.push(0, clock=1, data=((0, 4, 8),))
    bsp.push(1, clock=1, data=((0, 8, 12),))
    assert [rank for rank, _, _ in heard] == [2, 0, 1]
    assert bsp.role.pending(2) == ()


def test_what_is_done_is_saved_with_the_weights() -> None:
    bsp = server("bsp")
    bsp.push(0, clock=1, data=((0, 0, 4),))
    bsp.push(1, clock=1, data=((0, 8, 12),))
    bsp.push(0, clock=2, data=((0, 4, 8),))  # waits for its round, and will be made again
    later = server("bsp")
    later.role.load_state_dict(json.loads(json.dumps(bsp.role.state_dict())))
    assert list(later.role.done) == [(0, 0, 4), (0, 8, 12)]


def test_who_can_tell_what_became_of_samples() -> None:
    told = {name for name in names() if settles(make(name, {}), 1)}
    assert {"asp", "bsp", "ssp", "ksync", "gsp", "dcasgd", "lbbsp", "weedout", "dssp", "partial"} <= told
    assert told.isdisjoint({"localsgd", "esync", "sgp", "adpsgd", "easgd", "gosgd"})
    assert not settles(make("bsp", {}), 0)


def went_back(me: int, clocks: dict[int, int], shift: dict[int, int | None] | None = None) -> ByHand:
    """Shard `me` of several under SSP with a bound of none, gone back together with the others."""
    scheme = make("ssp", {"staleness": 0})
    assert scheme.Server is not None
    shard = ByHand(scheme.Server, scheme, me=me)
    tables = {"version": 3, "clocks": list(clocks.items()), "seen": [], "shift": list((shift or {}).items())}
    shard.role.load_state_dict(among_others(tables))
    return shard


def test_shards_that_went_back_to_torn_clocks_do_not_each_hold_back_whom_the_others_let_go() -> None:
    """Worker 0 would wait for worker 1 at one of them, and worker 1 for worker 0 at the other."""
    first, second = went_back(0, {0: 2, 1: 1}), went_back(1, {0: 1, 1: 2})
    assert first.pull(0, clock=2) == {}
    assert set(first.pull(1, clock=2)) == {0, 1}
    assert set(second.pull(0, clock=2)) == {0}
    assert set(second.pull(1, clock=2)) == {1}
    assert first.role.clocks == second.role.clocks == {0: 2, 1: 2}


def test_who_waits_at_one_shard_is_not_waited_for_by_another_that_knew_it_at_an_earlier_clock() -> None:
    """Worker 0 does not push until worker 1 is as far as it is at the first shard."""
    first, second = went_back(0, {0: 3, 1: 1}), went_back(1, {0: 0, 1: 1})
    for shard in (first, second):
        assert shard.pull(0, clock=3) == {}
        assert set(shard.pull(1, clock=1)) == {1}
        assert set(shard.push(1, 2)) == {1}
        assert set(shard.push(1, 3)) == {0, 1}


def test_a_copy_knows_whose_clock_is_still_unknown() -> None:
    shard, lost = went_back(0, {0: 0, 1: 1}), went_back(0, {0: 0, 1: 1})
    lost.pull(0, clock=3)
    shard.role.load_state_dict(lost.role.state_dict())
    assert (dict(shard.role.clocks), shard.role.untold) == ({0: 3, 1: 1}, {1})
    shard.pull(1, clock=3)
    assert dict(shard.role.clocks) == {0: 3, 1: 3}


def test_shards_that_went_back_count_as_the_workers_do() -> None:
    """One had put a newcomer two clocks further than the other."""
    first, second = went_back(0, {0: 5, 1: 5}, {1: 2}), went_back(1, {0: 5, 1: 3}, {1: 0})
    assert first.role.clocks == second.role.clocks == {0: 5, 1: 3}
    assert first.push(1, 4) == second.push(1, 4)
    assert first.role.clocks[1] == 4


def test_a_newcomer_without_a_push_stays_one_when_shards_go_back() -> None:
    shard = went_back(1, {0: 5, 1: 3}, {1: None})
    assert set(shard.pull(1, clock=9)) == {1}
    assert shard.role.clocks[1] == 3, "it was put there; its first push tells"
    shard.push(1, 2)
    assert shard.role.clocks[1] == 4


def test_the_clock_of_a_pull_counts_once_and_only_after_a_return() -> None:
    usual, back = server("ssp", staleness=0), went_back(0, {0: 1, 1: 1})
    usual.pull(0, clock=7)
    assert usual.role.clocks[0] == 0
    back.pull(0, clock=2)
    back.pull(0, clock=7)
    assert back.role.clocks[0] == 2


def test_a_newcomer_that_is_further_than_it_was_put_goes_on_from_its_own_clock() -> None:
    """Other shards may have put it elsewhere."""
    shard = server("ssp", staleness=0)
    shard.gone(1)
    shard.came(1)
    assert 1 not in shard.push(1, 5)
    assert shard.role.clocks[1] == 5
