"""`paceline schemes`: the table, and the page of one."""

from __future__ import annotations

import re

import pytest

from paceline.cli.main import main
from paceline.config import settings
from paceline.core.scheme import lookup, names
from tests.cli.conftest import Paceline

Capture = pytest.CaptureFixture[str]


def test_the_table_has_every_scheme_with_its_parameters(paceline: Paceline) -> None:
    done = paceline("schemes")
    assert done.returncode == 0
    for name in names():
        assert done.stdout.count(f"\n  {name} ") == 1
    for words in (lookup("ssp").summary, "Ho et al. 2013", "paceline schemes NAME"):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize("name", names())
def test_the_page_of_a_scheme_has_its_algorithm_parameters_and_paper(name: str, capsys: Capture) -> None:
    assert main(["schemes", name]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^    .*worker [a-z]:", text, re.MULTILINE)  # the box, in the letter of the paper
    assert "Use it" in text
    assert "@" in text
    flags = [s.flag for s in settings() if s.section == name]
    assert all(f"--{flag} " in text for flag in flags)
