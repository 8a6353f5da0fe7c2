"""Commands in the README and the pages: options are there, and what the script that runs them passes over as well."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from paceline.cli import main as cli
from paceline.cli.support.options import Parser
from scripts.readme_commands import INTERRUPTED, PASSED_OVER, Command, commands, filled_in, hosts_file

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL = [command for page in PAGES for command in commands(page)]


def of_paceline(command: Command) -> list[str]:
    """Its words after `paceline`; nothing for another program, and for one that stands for several."""
    words = shlex.split(command.text.removeprefix(".venv/bin/"), comments=True)
    if words[:1] != ["paceline"] or "|" in words or "..." in words:
        return []
    return words[1 : words.index(">") if ">" in words else None]


class ParsedError(Exception):
    """Its options are right; nothing has been done yet."""


def parse(words: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Raises ConfigError for words that are no options; returns the command that is launched, if any."""
    parse_all, launched = Parser.parse_all, list[str]()

    def parse_only(self: Parser, arguments: list[str]) -> None:
        launched[:] = getattr(parse_all(self, arguments), "command", None) or []
        raise ParsedError

    with monkeypatch.context() as patched:
        patched.setattr(Parser, "parse_all", parse_only)
        with pytest.raises(ParsedError):
            cli._dispatch(words)
    return launched[1:] if launched[:1] == ["paceline"] else []


@pytest.mark.parametrize("command", ALL, ids=lambda command: f"{command.page}:{command.line}")
def test_every_option_of_a_command_is_there(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = of_paceline(command)
    while words:
        words = parse(words, monkeypatch)


def test_commands_are_found_with_what_follows_them() -> None:
    texts = {command.text for command in ALL}
    assert len(ALL) > 80
    assert "paceline train --scheme bsp --servers 0" in texts  # without the comment
    assert any("--launcher slurm" in text and text.endswith("--scheme gsp") for text in texts)  # of two lines
    (shown,) = (command for command in ALL if "essync" in command.text)
    assert shown.output == ("paceline: --scheme essync: unknown scheme 'essync'; did you mean 'esync'?",)
    assert "gpu.example.org" in hosts_file(ROOT / "README.md")


def test_nothing_of_the_readme_is_passed_over_but_two_machines_and_the_tests() -> None:
    passed_over = [command.text for command in commands(ROOT / "README.md") if command.passed_over]
    assert passed_over == ["make test", "paceline launch -H hosts -s 2 paceline train --scheme gsp"]
    for part, _ in (*PASSED_OVER, *INTERRUPTED):
        assert any(part in command.text for command in ALL), f"no command has {part!r} any more"


def test_placeholders_become_runs_and_folders(tmp_path: Path) -> None:
    for number, driver in enumerate(("live", "live", "sim")):
        run = tmp_path / "runs" / f"run{number}"
        run.mkdir(parents=True)
        (run / "summary.json").write_text(f'{{"driver": "{driver}"}}')
        os.utime(run / "summary.json", (number, number))
    assert filled_in("paceline watch runs/...", tmp_path) == "paceline watch runs/run1"
    assert filled_in("paceline plot runs/A runs/B", tmp_path) == "paceline plot runs/run0 runs/run1"
    assert (
        filled_in("paceline train --data-dir DIR --out DIR", tmp_path) == "paceline train --data-dir data --out again"
    )
