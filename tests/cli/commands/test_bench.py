"""`paceline bench`: figures with their limits, as a table and as JSON; mistakes are told before any is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.cli.commands.bench import SUBJECTS
from paceline.cli.main import main
from tests.launch.forked_cli import Warm

Capture = pytest.CaptureFixture[str]


TINY = {
    "exchange": "--transport tcp --gate off,warn --servers 2 --mbytes 0.1 --slice-mb 0.01 --rounds 2",
    "mean": "--transport tcp --carriers ring --mbytes 0.1 --rounds 2",
    "codec": "--codecs 2bit --mbytes 0.1 --rounds 2",
    "overhead": "--models mlp --servers 1 --transport tcp --batch 4 --steps 1 --rounds 2",
    "links": "--transport tcp --rounds 2",
}


MEASURED = {
    "exchange": ["push and pull, tcp, gate off", "push and pull, tcp"],
    "mean": ["ring, tcp", "gloo"],
    "codec": ["2bit: encode", "2bit: decode", "2bit: decode and add"],
    "overhead": ["a step of mlp, 1 server"],
    "links": ["ask for nothing, tcp", "ask for a megabyte, tcp"],
}


def measured(warm: Warm, *words: str) -> str:
    """What the command prints; the processes that it measures are forked, and those of `overhead` started."""
    command = warm.paceline("bench", *words)
    out, err = command.communicate(90)
    assert (command.returncode, err) == (0, "")
    return out


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_subject_prints_a_table_and_writes_what_was_measured(subject: str, warm: Warm, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    out = measured(warm, subject, *TINY[subject].split(), "--json", str(path))
    written = json.loads(path.read_text())
    assert written["subject"] == subject
    assert [row["what"] for row in written["figures"]] == MEASURED[subject]
    for row in written["figures"]:
        assert row["seconds_median"] > 0
        assert row["seconds_limit"] > 0
        assert row["ratio"] == pytest.approx(row["seconds_median"] / row["seconds_limit"])
        assert row["bytes"] >= 0
        assert row["rounds"] == 2
        assert row["what"] in out
        assert f"{row['ratio']:.2f}" in out


@pytest.mark.parametrize("subject", ["exchange", "mean", "links"])
def test_under_tls_it_measures_what_goes_between_hosts(subject: str, warm: Warm, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    tiny = TINY[subject].replace("--transport tcp ", "")  # which goes without saying then
    tiny = tiny.replace(
        "--gate off,warn --servers 2 ", ""
    )  # and one job of two processes tells as much as two of three
    measured(warm, subject, *tiny.split(), "--tls", "--json", str(path))
    shown = {row["what"]: row["tls"] for row in json.loads(path.read_text())["figures"]}
    named = [what for what in MEASURED[subject] if "gate" not in what]
    assert shown == {what.replace("tcp", "tcp under TLS"): "tcp" in what for what in named}


def test_alone_it_says_what_can_be_measured(capsys: Capture) -> None:
    assert main(["bench"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {subject} " in text for subject in SUBJECTS)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_help_of_a_subject_says_what_bounds_it(subject: str, capsys: Capture) -> None:
    assert main(["bench", subject, "--help"]) == 0
    text = capsys.readouterr().out
    assert "limit is" in text or "bounds it" in text
    assert f"for example: paceline bench {subject}" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("exchnge", "did you mean 'exchange'?"),
        ("exchange --transport ship", "did you mean 'shm'?"),
        ("exchange --workers 0", "--workers: 0 is not a whole number between 1 and 64"),
        ("exchange --mbytes nan", "--mbytes: nan is not a number between"),
        ("exchange --scheme easgd", "easgd does more than push and pull: give asp or bsp"),
        ("exchange --scheme aps", "did you mean 'asp'?"),
        ("exchange --gate of", "did you mean 'off'?"),
        ("exchange --tls --transport shm,tcp", "shared memory does not leave the machine and needs none"),
        ("exchange --transport tcp --servers 3 --mbytes 0.00001", "give --servers 2 or less"),
        ("mean --workers 1", "between 2 and 64"),
        ("mean --carriers rnig", "did you mean 'ring'?"),
        ("codec --codecs 2bits", "did you mean '2bit'?"),
        ("codec --workers 2", "unknown option --workers"),
        ("overhead --models lenett", "did you mean 'lenet'?"),
        ("overhead --servers one", "one is not a whole number between 0 and 64"),
        ("links --json no/such/folder.json", "not a file in a folder that there is"),
        ("links --rounds", "--rounds: expected one argument"),
        ("links --to 10.0.0.5:4711", "whoever measures a link needs a token: make one by"),
        ("links --serve 10.0.0.5:4711 --to 10.0.0.6:4711", "not allowed with argument"),
    ],
)
def test_a_mistake_is_told_in_one_line(words: str, expected: str, capsys: Capture) -> None:
    assert main(["bench", *words.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err
    assert len(err.splitlines()) == 1, err
