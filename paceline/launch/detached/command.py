"""`--detach`, `--leader` and `--write-unit` of a command: another process leads the run, by the same command."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.launch.detached.leader import start_leader
from paceline.launch.detached.other_host import lead_on
from paceline.launch.detached.systemd_unit import write_unit
from paceline.launch.local.train import new_folder, removing_unused
from paceline.launch.remote.hostfile import HostEntry
from paceline.launch.remote.ssh import Ssh

DETACH = "--detach"
LEADER = "--leader"
WRITE_UNIT = "--write-unit"


def lead_elsewhere(verb: str, words: Sequence[str], config: Config, *, what: str = "", unit: str | None = None) -> int:
    """Starts `paceline VERB WORDS` as a leader of its own, or writes a unit that does; returns the exit code.

    words: what was typed after the verb, of which `leading_words` has taken the two options.
    config: the settings that the words say. what: names the run's folder, as in `new_folder`.
    unit: the file for the unit; None to start the run now.
    Raises ConfigError for a folder that cannot be used, and for a unit without a folder or checkpoints.
    """
    if unit is not None:
        if not config.run.out or config.checkpoint.every <= 0:
            raise ConfigError(
                f"{WRITE_UNIT}: a run that is started again needs --out DIR and --checkpoint-every SECONDS"
            )
        if config.checkpoint.resume not in ("never", "auto"):
            raise ConfigError(f"{WRITE_UNIT}: the unit goes on by --resume auto; leave --resume out")
        resume = () if config.checkpoint.resume == "auto" else ("--resume", "auto")
        named = new_folder(
            dataclasses.replace(config, checkpoint=dataclasses.replace(config.checkpoint, resume="auto"))
        )
        Path(named.run.out).mkdir(parents=True, exist_ok=True)  # systemd makes no folder for the output
        write_unit(Path(unit), [verb, *resume, *words], config.run.out)
        print(
            f"{unit} leads {config.run.out} and goes on from its newest checkpoint; its first lines say how to start it"
        )
        return 0
    named = new_folder(config, what)
    own_folder = () if config.run.out else ("--out", named.run.out)
    with removing_unused(named.run.out):
        Path(named.run.out).mkdir(parents=True, exist_ok=True)
        return start_leader([verb, *own_folder, *words], named.run.out, lambda line: print(line, file=sys.stderr))


def lead_on_host(verb: str, words: Sequence[str], config: Config, what: str, entry: HostEntry, ssh: Ssh) -> int:
    """Starts `paceline VERB --detach WORDS` on another host; returns the exit code. For the parameters see above.

    The run's folder has one name on both hosts; here it holds the way to the leader. Raises ConfigError.
    """
    out = config.run.out or new_folder(config, what).run.out
    own_folder = () if config.run.out else ("--out", out)
    with removing_unused(out):
        return lead_on(entry, ssh, [verb, DETACH, *own_folder, *words], out, lambda line: print(line, file=sys.stderr))


def leading_words(words: Sequence[str], command: Sequence[str] = ()) -> list[str]:
    """Returns `words` without the three options, which are looked for before `command` begins."""
    own, kept = iter(words[: len(words) - len(command)]), list[str]()
    for word in own:
        if word in (LEADER, WRITE_UNIT):
            next(own, None)
        elif word != DETACH and word.partition("=")[0] not in (LEADER, WRITE_UNIT):
            kept.append(word)
    return [*kept, *command]
