"""`paceline replay`: equal, the first difference, and what it shows on the way."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from paceline.cli.commands.replay import main
from paceline.core.coordination.elasticity import Elasticity
from paceline.core.errors import ConfigError
from paceline.core.parties.server_restore import ServerRestore
from paceline.live.recording.recording_file import RecordingWriter

KILLED = str(Path(__file__).resolve().parents[2] / "recordings" / "worker-and-server-killed.jsonl")
RESTORED = str(Path(KILLED).with_name("restored-server.decisions.jsonl"))
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


def test_the_decisions_of_a_party_are_replayed_alone_or_after_the_coordinators(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([RESTORED, "--transcript"]) == 0
    *story, last = capsys.readouterr().out.splitlines()
    assert any("restore.became: Restore" in line for line in story)
    assert any(line.split() == ["MeetEverybody"] for line in story)
    decisions = int(last.split()[1])
    assert last == f"equal: {decisions} decisions of 1 process: server 1, incarnation 1"
    (tmp_path / "recording").mkdir()
    for name, data in (("coordinator", KILLED), ("server-1.1.decisions", RESTORED)):
        (tmp_path / "recording" / f"{name}.jsonl.gz").write_bytes(gzip.compress(Path(data).read_bytes()))
    assert main([str(tmp_path)]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["equal", "equal"]
    monkeypatch.setattr(ServerRestore, "fetched", lambda self, order, complete: [])
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("server-1.1.decisions.jsonl.gz: server 1, incarnation 1")
    assert any(line.startswith("first difference: input") for line in lines)
    with pytest.raises(ConfigError, match="recording of a party; name the coordinator's"):
        main([RESTORED, "--write", str(tmp_path / "x")])


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
