"""Parameters as text: what is written is read again, and what cannot be read names the way out."""

from __future__ import annotations

import pytest

from paceline.core.parameter_syntax import parameters_in, with_parameters

KNOWN: dict[str, type] = {"staleness": int, "rate": float, "groups": str, "exact": bool}


def test_what_is_written_is_read_again() -> None:
    values = {"staleness": 2, "rate": 0.5, "groups": "0,1; 2", "exact": True}
    text = with_parameters("ssp", values)
    assert text == 'ssp(staleness=2, rate=0.5, groups="0,1; 2", exact=true)'
    assert parameters_in(text.removeprefix("ssp(").removesuffix(")"), "scheme ssp", KNOWN) == values


def test_without_parameters_it_is_the_name_alone() -> None:
    assert with_parameters("bsp", {}) == "bsp"
    assert parameters_in("", "scheme bsp", KNOWN) == {}


def test_a_whole_number_will_do_for_a_float_and_not_the_other_way() -> None:
    assert parameters_in("rate=1", "scheme ssp", KNOWN) == {"rate": 1.0}
    with pytest.raises(ValueError, match=r"staleness = 1.5: must be int"):
        parameters_in("staleness=1.5", "scheme ssp", KNOWN)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stalenes=2", "scheme ssp has no parameter 'stalenes'.*staleness"),
        ("staleness", r"cannot read 'staleness'; write parameters as 'ssp\(key=value, key=value\)'"),
        ('groups="0', "cannot read"),
        ("exact=1", "exact = 1: must be bool"),
        ("staleness=true", "staleness = true: must be int"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parameters_in(text, "scheme ssp", KNOWN)
