"""Command lines as MXNet's users write them, in their parts."""

from __future__ import annotations

import pytest

from paceline.compat.mxnet.scripts.command_line import taken_apart
from paceline.core.errors import ConfigError


@pytest.mark.parametrize(
    ("words", "ours", "launcher", "flags"),
    [
        ("train_mnist.py --network lenet", (), None, ("--network", "lenet")),
        ("python3.6 example/train_mnist.py", (), None, ()),
        ("--slowdown 1,3 /usr/bin/python train_mnist.py --lr 1", ("--slowdown", "1,3"), None, ("--lr", "1")),
        (
            "../../tools/launch.py -n 2 -s 2 --launcher local python train_mnist.py",
            (),
            "-n 2 -s 2 --launcher local",
            (),
        ),
        ("--out a python ../tools/launch.py -n 2 train_mnist.py --lr 1", ("--out", "a"), "-n 2", ("--lr", "1")),
    ],
)
def test_launcher_interpreter_script_and_flags_are_told_apart(
    words: str, ours: tuple[str, ...], launcher: str | None, flags: tuple[str, ...]
) -> None:
    line = taken_apart(words.split())
    assert (line.script, line.ours, line.flags) == ("train_mnist.py", ours, flags)
    assert line.launcher == (None if launcher is None else tuple(launcher.split()))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("python train_minst.py", "train_minst.py is not rebuilt: .*did you mean 'train_mnist.py'"),
        ("launch.py -n 2 --launcher local", "no training script is named: there are train_mnist.py, train_cifar10.py"),
        ("python fine-tune.py --pretrained-model vgg", "fine-tune.py is not rebuilt"),
    ],
)
def test_another_script_is_refused_with_those_that_there_are(words: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        taken_apart(words.split())
