"""Where a worker stands in the box of its scheme."""

from __future__ import annotations

import pytest

from paceline.cli.support import scheme_catalogue
from paceline.core.scheme import names
from paceline.observe.watch.algorithm_text import box
from paceline.observe.watch.waits.worker_rates import ACTIVITIES


@pytest.mark.parametrize("scheme", names())
def test_every_scheme_has_a_place_to_stand_for_whatever_a_worker_does(scheme: str) -> None:
    lines = box(scheme_catalogue.description(scheme))
    assert "\n".join("".join(piece.text for piece in line).rstrip() for line in lines) in "\n".join(
        line.removeprefix("    ").rstrip() for line in scheme_catalogue.description(scheme).splitlines()
    )
    places = [activity for line in lines for piece in line for activity in piece.at]
    assert sorted(places) == sorted(ACTIVITIES)


def test_computing_and_waiting_are_different_places_in_the_box_of_bsp() -> None:
    at = {
        activity: piece.text
        for line in box(scheme_catalogue.description("bsp"))
        for piece in line
        for activity in piece.at
    }
    assert at == {"computing": "g_i <- grad f_i(w);", "communicating": "push g_i;", "waiting": "w <- pull"}
