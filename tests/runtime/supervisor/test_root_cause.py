"""Of all that went wrong in the same moment, the root is named."""

from __future__ import annotations

from paceline.core.coordination.decisions import FailureKind
from paceline.core.coordination.party import Party, server, worker
from paceline.runtime.supervisor.events import Failure
from paceline.runtime.supervisor.root_cause import root_of

ENDED, ERROR, WAS_LOST, LOST_ANOTHER = FailureKind


def failure(who: Party, cause: str, kind: FailureKind, details: str = "") -> Failure:
    return Failure(who=who, cause=cause, details=details, kind=kind)


LOST = failure(worker(1), "lost worker 1: it closed the connection", WAS_LOST)


def test_a_process_that_died_explains_the_connections_that_others_lost() -> None:
    died = failure(worker(1), "worker 1 was killed by SIGKILL after 7 steps", ENDED)
    assert root_of([LOST, died]) == root_of([died, LOST]) == "worker 1 was killed by SIGKILL after 7 steps"


def test_a_party_that_says_its_own_error_is_named_with_that_and_its_details() -> None:
    ended = failure(worker(1), "worker 1 ended with exit code 1", ENDED)
    error = failure(worker(1), "ZeroDivisionError: division by zero", ERROR, "Traceback ...\n")
    assert root_of([LOST, ended, error]) == "ZeroDivisionError: division by zero\nTraceback ..."


def test_who_ended_because_it_lost_another_is_not_the_root() -> None:
    """Its process is the first to be seen dead, and all the same another's error is what ended the run."""
    ended = failure(server(0), "server 0 ended with exit code 1", ENDED)
    lost = failure(server(0), "lost worker 1: it closed the connection", LOST_ANOTHER)
    error = failure(worker(1), "MemoryError", ERROR)
    assert root_of([ended, lost, error]) == "MemoryError"


def test_the_first_of_equals_is_named() -> None:
    other = failure(worker(2), "lost worker 2: it closed the connection", WAS_LOST)
    assert root_of([LOST, other]) == "lost worker 1: it closed the connection"


def test_what_a_text_says_decides_nothing() -> None:
    """A user's own error may speak of something lost, and so may the name of what was lost."""
    own = failure(worker(0), "ValueError: lost worker 1 of my list", ERROR)
    assert root_of([LOST, own]) == own.cause
    ended = failure(worker(2), "worker 2 ended with exit code 1: the coordinator is gone, says my script", ENDED)
    assert root_of([LOST, ended]) == ended.cause
