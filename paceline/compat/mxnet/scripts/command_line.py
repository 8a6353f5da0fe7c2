"""Takes apart a command line as MXNet's users write it: a launcher, an interpreter, a training script, its flags.

--slowdown 1,1,3  ../../tools/launch.py -n 2 --launcher local  python  train_mnist.py  --network lenet
options of ours   MXNet's launcher and its options                     the script      its flags
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

SCRIPTS = ("train_mnist.py", "train_cifar10.py", "train_imagenet.py")
LAUNCHER = "launch.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A command line in its parts. `launcher` is None where there is no launch.py."""

    ours: tuple[str, ...]
    launcher: tuple[str, ...] | None
    script: str
    flags: tuple[str, ...]


def taken_apart(words: Sequence[str]) -> CommandLine:
    """Returns the parts of a command line. Raises ConfigError where no training script is named that is known."""
    at = next((at for at, word in enumerate(words) if PurePath(word).name in SCRIPTS), None)
    if at is None:
        other = next((word for word in words if word.endswith(".py") and PurePath(word).name != LAUNCHER), "")
        what = f"{other} is not rebuilt" if other else "no training script is named"
        hint = nearest(PurePath(other).name, SCRIPTS) if other else ""
        raise ConfigError(f"{what}: there are {', '.join(SCRIPTS)}{hint}; other scripts join by paceline.join")
    before = list(words[:at])
    if before and re.fullmatch(r"python[\d.]*", PurePath(before[-1]).name):
        before.pop()
    launch = next((i for i, word in enumerate(before) if PurePath(word).name == LAUNCHER), None)
    ours = before if launch is None else before[:launch]
    if ours and re.fullmatch(r"python[\d.]*", PurePath(ours[-1]).name):
        ours.pop()
    return CommandLine(
        ours=tuple(ours),
        launcher=None if launch is None else tuple(before[launch + 1 :]),
        script=PurePath(words[at]).name,
        flags=tuple(words[at + 1 :]),
    )
