"""Writes a systemd unit that leads a run, and starts its command again when it dies.

The command goes on from the newest checkpoint (`--resume auto`), so the unit needs checkpoints. Exit codes 2 (wrong
settings) and those of signals end it for good: to start it again would change nothing, or undo what somebody wanted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.core.files.helper_command import helper_command
from paceline.launch.detached.leader import CONSOLE

RESTARTS_MAX = 10
RESTART_SECONDS = 5
STOP_SECONDS = 30
"""The end in order after SIGTERM takes 10 s at most, and a last checkpoint is written in it."""

UNIT = """\
# Made by `paceline ... --write-unit`. As the user who trains:
#   cp {name} ~/.config/systemd/user/ && systemctl --user daemon-reload && systemctl --user start {name}
#   loginctl enable-linger      # once, so that it goes on after logout
[Unit]
Description=Paceline run {out}
StartLimitIntervalSec=3600
StartLimitBurst={burst}

[Service]
Type=exec
WorkingDirectory={folder}
Environment={path} PYTHONUNBUFFERED=1
ExecStart={command}
Restart=on-failure
RestartSec={restart}
RestartPreventExitStatus=2 129 130 143
KillMode=mixed
TimeoutStopSec={stop}
StandardOutput=append:{console}
StandardError=inherit

[Install]
WantedBy=default.target
"""


def write_unit(file: Path, words: Sequence[str], out: str) -> None:
    """Writes a unit that runs `paceline WORDS` in this folder. `out` is the run's folder.

    Raises ConfigError for a name that systemd would not take, and where the file cannot be written.
    """
    if file.suffix != ".service":
        raise ConfigError(f"--write-unit {file}: the name of a unit ends in .service")
    folder = Path.cwd()
    text = UNIT.format(
        name=file.name,
        out=_plain(out),
        burst=RESTARTS_MAX,
        folder=_plain(str(folder)),
        path=quoted(f"PATH={os.environ.get('PATH', os.defpath)}"),
        command=" ".join(quoted(word, command=True) for word in helper_command("paceline", *words)),
        restart=RESTART_SECONDS,
        stop=STOP_SECONDS,
        console=_plain(str((folder / out / CONSOLE).absolute())),
    )
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--write-unit {file}: {error.strerror}") from None


def quoted(word: str, *, command: bool = False) -> str:
    """Returns `word` as one word of a unit: in double quotes, with what systemd would expand escaped.

    command: it stands in ExecStart=, where `$` begins a variable. Raises ConfigError for a control character.
    """
    inner = _plain(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner.replace("$", "$$") if command else inner}"'


def _plain(text: str) -> str:
    """Returns `text` with `%`, which begins a specifier, doubled. Raises ConfigError for a control character."""
    if any(ord(character) < 32 for character in text):
        raise ConfigError(f"--write-unit: {text!r} has a control character, which a unit cannot hold")
    return text.replace("%", "%%")
