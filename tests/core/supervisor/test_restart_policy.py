"""How often and when a lost worker is started again."""

from __future__ import annotations

from paceline.core.coordination.party import EVALUATOR, server, worker
from paceline.core.supervisor.restart_policy import (
    LATE_RESTARTS,
    LATER_SECONDS,
    PAUSE_SECONDS_MAX,
    SERVER_PAUSE_SECONDS_MAX,
    SHORT_SECONDS,
    EvaluatorRestarts,
    Replacements,
    Restarts,
)


def test_a_worker_is_started_again_at_once_and_so_often() -> None:
    restarts = Restarts(2)
    for now in (100.0, 200.0):
        assert restarts.ended(now, worker(3)) == ""
        assert restarts.due(now) == [worker(3)]
        assert restarts.due(now + 1) == []
    assert restarts.ended(300.0, worker(3)) == "worker 3 is not started again: --restarts 2"
    assert restarts.due(400.0) == []
    assert restarts.ended(300.0, worker(1)) == ""  # each has its own


def test_short_lives_make_the_pause_longer_up_to_a_limit_and_a_long_one_shortens_it() -> None:
    restarts, now, pauses = Restarts(100), 1000.0, []
    for _ in range(8):
        restarts.ended(now, worker(0))
        began = now
        while not restarts.due(now):
            now += 0.5
        pauses.append(now - began)
        now += 1.0
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]
    restarts.ended(now + SHORT_SECONDS, worker(0))
    assert restarts.due(now + SHORT_SECONDS) == [worker(0)]


def test_no_restarts_means_none() -> None:
    assert Restarts(0).ended(1.0, worker(0)) != ""


def test_an_evaluator_whose_restarts_are_used_up_is_tried_again_later_a_bounded_number_of_times() -> None:
    restarts, now, pauses = Restarts(1), 1000.0, []
    assert restarts.ended(now, EVALUATOR, later=LATE_RESTARTS) == ""
    assert restarts.due(now) == [EVALUATOR]
    for _ in range(LATE_RESTARTS):
        now += 100.0
        assert restarts.ended(now, EVALUATOR, later=LATE_RESTARTS) == ""
        pauses.append(pause := restarts.pause(now, EVALUATOR))
        assert restarts.due(now + pause - 0.1) == []
        now += pause
        assert restarts.due(now) == [EVALUATOR]
    assert pauses == [LATER_SECONDS * n for n in range(1, LATE_RESTARTS + 1)]
    assert "not started again" in restarts.ended(now, EVALUATOR, later=LATE_RESTARTS)
    assert "not started again" in Restarts(0).ended(now, EVALUATOR, later=LATE_RESTARTS), "--restarts 0 means none"


def test_a_server_is_replaced_once_it_is_given_up_and_its_process_has_ended_whichever_is_heard_first() -> None:
    replacements = Replacements(4)
    assert not replacements.ended(server(0), 0)
    assert replacements.given_up(server(0), 0)
    replacements.joined(server(0), 1)
    assert not replacements.given_up(server(0), 1)
    assert replacements.ended(server(0), 1)
    assert not replacements.given_up(server(0), 1), "there is one in its place already"


def test_a_server_that_ends_before_it_joins_is_tried_again_as_long_as_it_has_lives() -> None:
    replacements = Replacements(4)
    assert not replacements.given_up(server(1), 0)
    assert replacements.ended(server(1), 0)
    for incarnation in (1, 2):
        assert not replacements.hopeless(server(1), incarnation)
        assert replacements.ended(server(1), incarnation)
        assert not replacements.given_up(server(1), incarnation), "its hello was still on its way; the next one is up"
    assert replacements.hopeless(server(1), 3)
    replacements.joined(server(1), 3)
    assert not replacements.hopeless(server(1), 3)
    assert not replacements.ended(server(1), 3), "it joined: the coordinator has to give it up"
    assert not replacements.hopeless(server(1), 5), "what counts is how often it did not join since it last did"
    assert replacements.hopeless(server(1), 6)


def test_a_worker_may_die_as_often_as_it_is_started_again() -> None:
    replacements = Replacements(4)
    assert not any(replacements.hopeless(worker(0), incarnation) for incarnation in range(10))


def test_an_evaluator_has_two_lives_more_when_nobody_trains() -> None:
    restarts = EvaluatorRestarts()
    assert not restarts.takes_final_restart()  # it is there
    restarts.ended()
    restarts.started()  # while training goes on
    assert not restarts.takes_final_restart()
    for last in (False, True):
        restarts.ended()
        assert not restarts.exhausted
        assert restarts.takes_final_restart()
        assert not restarts.takes_final_restart()
        assert restarts.exhausted == last
    restarts.ended()
    assert not restarts.takes_final_restart()


def test_a_refused_worker_is_tried_again_and_again_after_growing_pauses_and_its_restarts_are_kept() -> None:
    restarts, now, pauses = Restarts(1), 1000.0, []
    assert restarts.ended(now, worker(0)) == ""
    assert restarts.due(now) == [worker(0)]
    for _ in range(8):
        assert restarts.refused(now, worker(0)) == ""
        pauses.append(restarts.pause(now, worker(0)))
        now += pauses[-1]
        assert restarts.due(now) == [worker(0)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]
    assert restarts.ended(now + 100.0, worker(0)) != "", "the right version came by its only restart"


def test_where_nobody_is_started_again_a_refused_worker_is_not() -> None:
    restarts = Restarts(0)
    assert restarts.refused(1.0, worker(0)) == "worker 0 is not started again: --restarts 0"
    assert restarts.due(100.0) == []


def test_a_refused_server_is_tried_again_after_growing_pauses_and_counts_towards_no_limit() -> None:
    replacements, now = Replacements(4), 0.0
    assert not replacements.given_up(server(0), 0)
    assert replacements.ended(server(0), 0)
    for refused in range(1, 7):
        replacements.refused(now, server(0))
        assert replacements.due(now) == []
        now += min(SERVER_PAUSE_SECONDS_MAX, 2.0 ** (refused - 1))
        assert replacements.due(now) == [server(0)]
        assert replacements.due(now) == [], "one end starts one successor"
        assert not replacements.hopeless(server(0), refused + 1)
    assert replacements.hopeless(server(0), 9), "three in a row have ended otherwise"
    replacements.joined(server(0), 9)
    assert not replacements.hopeless(server(0), 10)
