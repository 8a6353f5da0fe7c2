"""What a worker sums up for others: NaN is left out, and a model that has diverged reaches the servers."""

import numpy as np

from paceline.core.paramserver.peer_check import OwnPartCheck, OwnResults, PeerCheck
from paceline.core.trace import Decided, Record

GOOD, BAD = np.ones(3), np.array([1.0, np.nan, 0.0])


def test_what_is_not_finite_is_rejected_and_its_sender_named() -> None:
    records: list[Record] = []
    check = PeerCheck(0, records.append)
    why = check.push(2.0, 2, BAD)
    assert why is not None
    assert why.startswith("not finite")
    assert records == [Decided(at=2.0, party="worker 0", rank=2, verdict="refused", reason=why)]
    assert check.part(3.0, 2, BAD) == why
    assert check.part(3.0, 2, GOOD) is None


def test_its_own_passes_so_that_the_servers_see_a_model_that_has_diverged() -> None:
    check = PeerCheck(0, None)
    assert check.push(1.0, 0, BAD) is None
    assert check.part(1.0, 0, BAD) is None


def test_a_worker_tells_of_each_bad_result_of_its_own_and_of_the_first_good_one_after_it() -> None:
    told: list[tuple[int, bool, bool]] = []
    own = OwnResults(lambda *said: told.append(said))
    for v in (GOOD, BAD, GOOD, GOOD, BAD, BAD, GOOD, GOOD):
        own.judged(finite=own(v))
    assert told == [(2, False, False), (3, True, False), (5, False, False), (6, False, False), (7, True, False)]


def test_a_part_of_a_mean_is_judged_if_it_has_a_weight() -> None:
    told: list[tuple[int, bool, bool]] = []
    own = OwnResults(lambda *said: told.append(said))
    assert [own.rejects(BAD, 0.0), own.rejects(GOOD, 1.0), own.rejects(BAD, 1.0)] == [False, False, True]
    assert told == [(2, False, True)]


def test_each_leaves_its_own_part_out_whatever_the_others_bring() -> None:
    told: list[tuple[int, int, bool, bool]] = []
    owns = {rank: OwnResults(lambda *said, rank=rank: told.append((rank, *said))) for rank in range(2)}
    check = OwnPartCheck(owns)
    assert check.part(1.0, 1, GOOD) is None
    why = check.part(2.0, 1, BAD)
    assert why is not None
    assert why.startswith("not finite")
    check.gone(1)
    check.came(1)
    assert check.push(3.0, 0, BAD) == why
    assert told == [(1, 2, False, True), (0, 1, False, True)]
