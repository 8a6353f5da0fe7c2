"""The benchmark of codecs runs, on little; whether its claim is kept there says nothing."""

from __future__ import annotations

import pytest

from benchmarks import codecs
from paceline.codec import encoders


def test_it_shows_every_codec_and_two_claims(capsys: pytest.CaptureFixture[str]) -> None:
    assert codecs.main(["--mbytes", "0.1", "--rounds", "1"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in lines if ": encode " in line][: len(encoders())] == encoders()
    assert sum("GB/s, claimed" in line for line in lines) == 2
