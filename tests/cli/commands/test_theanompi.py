"""`paceline theanompi`: the file and the flags of tmlauncher become a command of `paceline launch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.commands import launch
from paceline.cli.main import main

CFG = "RULE=BSP\nMODELFILE=theanompi.models.cifar10\nMODELCLASS=Cifar10_model\nDEVICES=(cpu cpu)\n"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be launched."""
    words: list[list[str]] = []

    def instead(arguments: list[str]) -> int:
        words.append(arguments)
        return 0

    monkeypatch.setattr(launch, "main", instead)
    return words


def test_flags_override_the_file_and_launch_takes_the_rest(
    tmp_path: Path, launched: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.cfg").write_text(CFG)
    flags = ["-bsp_exch_strategy=asa32", "-class=Mine", "-s=2", "-bind", "-set", "epochs=2", "--out", "runs/a"]
    assert main(["theanompi", f"-cfg={tmp_path / 's.cfg'}", *flags]) == 0
    (words,) = launched
    assert words[:2] == ["--out", "runs/a"]
    assert words[2:10] == ["--bind-cores", "auto", "-n", "2", "-s", "0", "--allreduce", "pairwise"]
    assert words[words.index("BSP") :][:3] == ["BSP", "theanompi.models.cifar10", "Mine"]
    assert words[-1] == "epochs=2"
    said = capsys.readouterr().err
    assert "asa32 is --allreduce pairwise" in said
    assert "-bind is --bind-cores auto" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-r=BSP"], "a session needs -d=..., or -cfg=FILE"),
        (["-cfg=nowhere.cfg"], "-cfg=nowhere.cfg: cannot be read"),
        (["-r=BSP", "-d=cpu", "-file=m", "-class=C", "-set", "epochs"], "-set epochs: must be NAME=VALUE"),
        (["--rules=BSP"], "unknown option --rules=BSP"),
    ],
)
def test_what_is_missing_or_unknown_is_said_in_a_line(
    words: list[str], said: str, launched: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["theanompi", *words]) == 2
    assert said in capsys.readouterr().err
    assert launched == []
