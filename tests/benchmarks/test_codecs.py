"""The benchmark of codecs runs, on little; whether its claim is kept there says nothing."""

from __future__ import annotations

import pytest

from benchmarks import codecs
from paceline.codec import encoders


def test_it_shows_every_codec(capsys: pytest.CaptureFixture[str]) -> None:
    assert codecs.main(["--mbytes", "0.1", "--repeats", "1"]) in (0, 1)
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:-1]]
    assert shown == encoders()
