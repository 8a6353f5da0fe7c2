"""What a person asks of a run on its page: twice, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.core.errors import ConfigError
from paceline.observe.watch.serving.control_requests import CONFIRM_SECONDS, WORDS_MAX, ControlRequests


class Desk:
    """The requests of one page, with the orders that were given and a clock that the test sets."""

    def __init__(self) -> None:
        self.given: list[tuple[str, int, float]] = []
        self.now = 0.0
        self.requests = ControlRequests(self.give, lambda: self.now)

    def give(self, kind: str, rank: int, factor: float) -> None:
        if kind == "grow":
            raise ConfigError("the run is over")
        self.given.append((kind, rank, factor))

    def ask(self, **request: Any) -> tuple[int, dict[str, Any]]:
        return self.requests.take(json.dumps(request).encode())


def test_an_order_is_given_when_it_is_asked_for_the_second_time() -> None:
    desk = Desk()
    status, told = desk.ask(kind="expel", rank=3)
    assert (status, desk.given) == (200, [])
    assert told["sentence"].startswith("Expel worker 3: ")
    assert desk.ask(kind="expel", rank=3, confirm=told["confirm"]) == (200, {"given": True})
    assert desk.given == [("expel", 3, 1.0)]
    assert desk.ask(kind="expel", rank=3, confirm=told["confirm"])[0] == 409
    assert len(desk.given) == 1, "a word is good once"


def test_a_word_is_good_for_the_very_same_order_and_for_some_time() -> None:
    desk = Desk()
    _, told = desk.ask(kind="learning-rate", factor=0.5)
    assert desk.ask(kind="learning-rate", factor=5.0, confirm=told["confirm"])[0] == 409
    _, told = desk.ask(kind="drain", rank=1)
    desk.now = CONFIRM_SECONDS + 1
    assert desk.ask(kind="drain", rank=1, confirm=told["confirm"])[0] == 409
    _, told = desk.ask(kind="drain", rank=1)
    for _ in range(WORDS_MAX):
        desk.ask(kind="checkpoint")
    assert desk.ask(kind="drain", rank=1, confirm=told["confirm"])[0] == 409, "too many questions are open"
    assert desk.given == []


def test_an_order_that_cannot_be_given_says_why() -> None:
    desk = Desk()
    _, told = desk.ask(kind="grow")
    assert desk.ask(kind="grow", confirm=told["confirm"]) == (503, {"error": "the run is over"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 1000,
        b'{"kind":"destroy"}',
        b'{"kind":["expel"]}',
        b'{"kind":"expel","rank":-1}',
        b'{"kind":"expel","rank":true}',
        b'{"kind":"expel","rank":1.5}',
        b'{"kind":"learning-rate","factor":0}',
        b'{"kind":"learning-rate","factor":NaN}',
        b'{"kind":"learning-rate","factor":Infinity}',
        b'{"kind":"learning-rate","factor":1' + b"0" * 400 + b"}",
        b'{"kind":"grow","confirm":7}',
        b'{"kind":"grow","run":"/etc"}',
    ],
)
def test_what_is_no_request_is_refused_in_a_line(body: bytes) -> None:
    desk = Desk()
    status, told = desk.requests.take(body)
    assert (status, desk.given) == (400, [])
    assert "\n" not in told["error"]
