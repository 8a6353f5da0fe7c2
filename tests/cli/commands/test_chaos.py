"""`paceline chaos` as a user has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.main import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--faults", "kill,parti"], "did you mean 'partition'"),
        (["--count", "0"], "--count 0: must be finite, and 1 or more"),
        (["--every", "0"], "--every 0.0: must be finite, and 0.1 or more"),
        (["--every", "nan"], "--every nan: must be finite, and 0.1 or more"),
        (["--points", "inf"], "--points inf: must be finite, and 0.0 or more"),
        (["--workers", "1"], "two workers or more"),
        (["--servers", "0"], "needs --servers 1"),
        (["--scheme", "esync", "--allreduce", "ring"], "needs servers"),
        (["--transport", "shm"], "leave partition out"),
        (["--fault", "kill"], "unknown option --fault"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chaos", *words]) == 2
    heard = capsys.readouterr()
    assert says in heard.err
    assert heard.out == ""


def test_the_plan_can_be_had_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "--dry-run", "--count", "3", "--faults", "kill", "--seed", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [[at, "s", "kill"] for at in ("2.0", "4.0", "6.0")]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="counts on signals as Linux has them")
def test_a_run_under_every_fault_comes_through_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.cli.commands.chaos.LATE_SECONDS", 60.0)
    out = tmp_path / "run"
    words = ["--every", "0.6", "--count", "7", "--dead-after", "2", "--hang", "60", "--workers", "3", "--seed", "3"]
    code = main(["chaos", *words, "--ack", "replica", "--step-ms", "5", "--eval-every", "1", "--out", str(out)])
    heard = capsys.readouterr()
    assert code == 0, heard
    plan, lines = heard.out.splitlines()[:7], heard.err.splitlines()
    for fault in plan:
        told = [line for line in lines if line.startswith((f"{fault}:", f"{fault} ("))]
        assert len(told) == 1, (fault, heard.err)
    assert {line.split()[2] for line in plan} == {"kill", "stop", "slow", "partition"}
    assert {line.split()[3] for line in plan if line.split()[2] == "kill"} == {"worker", "server", "evaluator"}
    assert "7 of 7 faults" in heard.out
    assert "(ended by: all faults have settled)" in heard.out
    assert heard.out.endswith("the run came through\n")
    assert (out / "summary.json").exists()
