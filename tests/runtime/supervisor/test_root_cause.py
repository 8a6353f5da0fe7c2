"""Of all that went wrong in the same moment, the root is named."""

from __future__ import annotations

from paceline.live.party import COORDINATOR, Party, server, worker
from paceline.runtime.supervisor.events import Failure
from paceline.runtime.supervisor.root_cause import root_of


def failure(who: Party, cause: str, rank: int, details: str = "") -> Failure:
    return Failure(who=who, cause=cause, details=details, rank=rank)


LOST = failure(COORDINATOR, "lost worker 1: it closed the connection", 2)


def test_a_process_that_died_explains_the_connections_that_others_lost() -> None:
    died = failure(worker(1), "worker 1 was killed by SIGKILL after 7 steps", 0)
    assert root_of([LOST, died]) == root_of([died, LOST]) == "worker 1 was killed by SIGKILL after 7 steps"


def test_a_party_that_says_its_own_error_is_named_with_that_and_its_details() -> None:
    ended = failure(worker(1), "worker 1 ended with exit code 1", 0)
    error = failure(worker(1), "ZeroDivisionError: division by zero", 1, "Traceback ...\n")
    assert root_of([LOST, ended, error]) == "ZeroDivisionError: division by zero\nTraceback ..."


def test_who_ended_because_it_lost_another_is_not_the_root() -> None:
    """Its process is the first to be seen dead, and all the same another's error is what ended the run."""
    ended = failure(server(0), "server 0 ended with exit code 1", 0)
    lost = failure(server(0), "lost worker 1: it closed the connection", 2)
    error = failure(worker(1), "MemoryError", 1)
    assert root_of([ended, lost, error]) == "MemoryError"


def test_the_first_of_equals_is_named() -> None:
    other = failure(COORDINATOR, "lost worker 2: it closed the connection", 2)
    assert root_of([LOST, other]) == "lost worker 1: it closed the connection"
