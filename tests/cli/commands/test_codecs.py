"""`paceline codecs`: the table of all, and the page of one."""

from __future__ import annotations

from paceline.cli.commands.schemes import COLUMNS
from paceline.cli.main import main
from paceline.codec.base import names
from tests.cli.conftest import Capture, refused_here


def test_the_table_has_a_line_for_each_codec_with_what_it_does_to_weights(capsys: Capture) -> None:
    assert main(["codecs"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert rows.keys() - {"codec"} == set(names())
    assert max(map(len, rows.values())) <= COLUMNS
    assert {name: rows[name].split()[-1] for name in ("fp16", "topk")} == {"fp16": "same", "topk": "differences"}


def test_a_page_has_the_rule_the_parameters_the_bytes_and_the_paper(capsys: Capture) -> None:
    assert main(["codecs", "sign"]) == 0
    out = capsys.readouterr().out
    assert "r <- r + g;  s <- mean |r| over each block" in out
    assert "block = 4096" in out
    assert "Bytes of 1000000 numbers: 125980 instead of 4000000" in out
    assert "@inproceedings{karimireddy2019error" in out


def test_one_without_parameters_says_so(capsys: Capture) -> None:
    assert main(["codecs", "fp16"]) == 0
    assert "Parameters, with their defaults\n  none" in capsys.readouterr().out


def test_a_wrong_name_gets_the_nearest(capsys: Capture) -> None:
    assert "did you mean 'topk'?" in refused_here(capsys, "codecs", "topk2")
