"""Links between two machines are measured with the token of their owner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.bench import hosts
from paceline.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_the_way_from_another_machine_is_measured_with_its_token(token: str, capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    with hosts.showing("127.0.0.1:0", token) as place:
        for _ in range(2):  # also a second time
            assert main(["bench", "links", "--to", place, "--rounds", "20", "--json", str(path)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("from there to here: ") == 2
    nothing, megabyte = json.loads(path.read_text())["figures"]
    assert nothing["what"] == f"ask {place} for nothing"
    assert 0 < nothing["seconds_median"] < megabyte["seconds_median"]
    assert megabyte["bytes"] == hosts.FREIGHT_BYTES


def test_who_has_another_token_measures_nothing(token: str, capsys: Capture) -> None:
    with hosts.showing("127.0.0.1:0", token[::-1]) as place:
        assert main(["bench", "links", "--to", place]) == 1
    assert "is `paceline bench links --serve` running there, with the same token?" in capsys.readouterr().err


Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--to 10.0.0.5", "'10.0.0.5': give a host and a port, such as 10.0.0.5:4711"),
        ("--serve 0.0.0.0:4711", "give the one address by which others reach this machine"),
        ("--serve 192.0.2.1:4711", "--serve 192.0.2.1:4711: "),
    ],
)
def test_an_address_that_leads_nowhere_is_told(words: str, expected: str, token: str, capsys: Capture) -> None:
    assert main(["bench", "links", *words.split()]) == 2
    assert expected in capsys.readouterr().err
