"""`paceline replay`: equal, the first difference, and what it shows on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cli.commands.replay import main
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.errors import ConfigError
from paceline.live.recording.recording_file import RecordingWriter

KILLED = str(Path(__file__).resolve().parents[2] / "recordings" / "worker-and-server-killed.jsonl")
Capture = pytest.CaptureFixture[str]


def test_an_equal_replay_has_exit_code_0(capsys: Capture) -> None:
    assert main([KILLED]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert "coordinator, ssp, 2 workers, 1 server; 309 inputs in 4.6 s" in first
    assert last == "equal: this version of Paceline decides what was decided then"


def test_the_first_difference_is_shown_with_what_came_in_before(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elasticity, "_enter", lambda self, who: None)
    assert main([KILLED, "--before", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("first difference: input 89 of 309")
    assert [line for line in lines if "Aware view=3" in line and line.startswith(">")]
    assert any(line.startswith("    - then") and "event=returned" in line for line in lines)
    assert lines[-1].split() == ["+", "now", "nothing"]


def test_the_transcript_tells_the_story_and_all_of_it_if_asked(capsys: Capture) -> None:
    assert main([KILLED, "--transcript"]) == 0
    story = capsys.readouterr().out
    assert "worker 1 is lost (closed): the other side closed the connection" in story
    assert "the process of server 0 has ended" in story
    assert "Progress" not in story
    assert main([KILLED, "--transcript", "--all"]) == 0
    assert len(capsys.readouterr().out) > 2 * len(story)


def test_one_input_is_shown_in_full(capsys: Capture) -> None:
    assert main([KILLED, "--input", "79", "--before", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if " s  " in line] == ["78", "79"]


def test_a_recording_is_written_with_the_decisions_of_today(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "x.jsonl"
    assert main([KILLED, "--write", str(path)]) == 0
    assert path.read_text() == Path(KILLED).read_text()


def test_what_a_party_was_sent_is_printed_all_incarnations_in_their_order(tmp_path: Path, capsys: Capture) -> None:
    for name, at in (("worker-0.1", 3.0), ("worker-0.0", 2.0), ("worker-0.0.old", 1.0), ("worker-1.0", 9.0)):
        writer = RecordingWriter(tmp_path / "recording" / f"{name}.jsonl.gz", 1 << 20, {"party": "x"})
        writer.append(["got", at, "server 0", {"control.Quota": {"samples": 3}}])
        writer.close()
    assert main([str(tmp_path), "--party", "worker-0"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if " s  " in line]
    assert lines == [f"{at:12.6f} s  got  from server 0: Quota samples=3" for at in (1.0, 2.0, 3.0)]
    with pytest.raises(ConfigError, match="has recordings of worker-0, worker-1"):
        main([str(tmp_path), "--party", "worker-7"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "nowhere: no such folder or file, nor below runs/"),
        ([KILLED, "--input", "0"], "--input 0: the recording has inputs 1 to 309"),
        ([KILLED, "--write", "/nowhere/x"], "--write /nowhere/x: No such file or directory"),
        ([str(Path(KILLED).parent)], "record the run with --record"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        main(words)
