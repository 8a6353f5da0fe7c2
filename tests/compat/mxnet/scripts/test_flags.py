"""The flags of MXNet's scripts and of its launcher, and their defaults."""

from __future__ import annotations

import pytest

from paceline.compat.mxnet.scripts.flags import flags_of, launcher_flags
from paceline.core.errors import ConfigError


def test_each_script_has_its_own_defaults() -> None:
    for script, network, batch, epochs, lr, steps in (
        ("train_mnist.py", "mlp", 64, 20, 0.05, "10"),
        ("train_cifar10.py", "resnet", 128, 300, 0.05, "200,250"),
        ("train_imagenet.py", "resnet", 128, 80, 0.1, "30,60"),
    ):
        flags, given = flags_of(script, [])
        assert (flags.network, flags.batch_size, flags.num_epochs, flags.lr) == (network, batch, epochs, lr)
        assert (flags.lr_step_epochs, flags.mom, flags.wd, flags.kv_store) == (steps, 0.9, 0.0001, "device")
        assert given == set()


def test_flags_are_read_as_mxnet_reads_them() -> None:
    words = "--gc-type 2bit --gc-threshold 0.1 --gpus 0,2 --staleness=3 --image_shape 1,28,28 --savemodel"
    flags, given = flags_of("train_mnist.py", words.split())
    assert (flags.gc_type, flags.gc_threshold, flags.gpus, flags.staleness, flags.savemodel) == (
        "2bit",
        0.1,
        "0,2",
        3,
        True,
    )
    assert given == {"gc_type", "gc_threshold", "gpus", "staleness", "image_shape", "savemodel"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--num-epoch 3", "train_mnist.py has no flag --num-epoch; did you mean '--num-epochs'"),
        ("--lr fast", "train_mnist.py: argument --lr: invalid float value: 'fast'"),
    ],
)
def test_a_flag_that_is_none_is_refused_in_one_line(words: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        flags_of("train_mnist.py", words.split())


def test_the_launcher_has_as_many_servers_as_workers_unless_it_is_told() -> None:
    assert launcher_flags(["-n", "3"]).num_servers == 3
    told = launcher_flags(["-n", "3", "-s", "1", "-H", "hosts", "--env-worker", "A:1", "--env", "B:2", "-i", "eth0"])
    assert (told.num_servers, told.hostfile, told.env_worker, told.env) == (1, "hosts", ["A:1"], ["B:2"])
    assert told.dmlc_interface == "eth0"
    with pytest.raises(ConfigError, match="required: -n"):
        launcher_flags(["--launcher", "local"])
    with pytest.raises(ConfigError, match="launch.py has no option --fast"):
        launcher_flags(["-n", "2", "--fast"])
