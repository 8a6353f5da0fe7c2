"""Phases as text."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.phases.grammar import parse


def test_a_phase_is_a_scheme_its_parameters_and_when_it_ends() -> None:
    first, second, third = parse(
        'bsp until 2 epochs; ssp(staleness=2) until accuracy 0.9 or 60 seconds; gsp(groups="0;1")'
    )
    assert (first.scheme, first.parameters, first.until) == ("bsp", {}, (("epochs", 2.0),))
    assert (second.parameters, second.until) == ({"staleness": 2}, (("accuracy", 0.9), ("seconds", 60.0)))
    assert (third.scheme, third.parameters, third.until) == ("gsp", {"groups": "0;1"}, ())


@pytest.mark.parametrize(
    "text",
    [
        "bsp",
        "bsp until 100 steps; asp",
        'gsp(groups="0,1;2,3", ratio=2.0) until accuracy 0.5; esync(delayed_ack=true, cap=3)',
        "asp(weighting=power:0.5) until 1 steps or 2.5 seconds; bsp",
    ],
)
def test_what_is_written_out_reads_the_same_again(text: str) -> None:
    phases = parse(text)
    assert parse("; ".join(map(str, phases))) == phases


def test_one_step_needs_no_plural() -> None:
    assert parse("bsp until 1 step; asp") == parse("bsp until 1 steps; asp")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bsp; asp", "bsp would never end: say until when"),
        ("bsp until 3 steps", "the last phase, bsp, goes on until the run ends"),
        ("bsp until 3; asp", "write N steps, N seconds, N epochs or accuracy X"),
        ("bsp until -3 steps; asp", "write N steps"),
        ("bsp until 0 steps; asp", "write N steps"),
        ("bsp until 3 steps;; asp", "write phases as 'bsp until 2 epochs; esync'"),
        ("", "write phases as"),
        ("bps until 3 steps; asp", "did you mean 'bsp'"),
        ("ssp(stalenes=2) until 3 steps; asp", "did you mean 'staleness'"),
        ("ssp(staleness=two) until 3 steps; asp", "staleness = two: must be int"),
        ("ssp(2) until 3 steps; asp", r"write parameters as 'ssp\(key=value"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)
