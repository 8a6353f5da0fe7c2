"""Flags of ESync's `main.py` as settings of a run."""

from __future__ import annotations

from typing import Any

import pytest

from paceline import config
from paceline.compat.esync.flags import EsyncFlags, settings_of
from paceline.core.errors import ConfigError


def values(**flags: Any) -> dict[str, dict[str, Any]]:
    return settings_of(EsyncFlags(**flags), 6)[0]


def test_the_defaults_are_those_of_esyncs_config_file() -> None:
    made = values()
    assert made["run"]["scheme"] == "esync"
    assert made["esync"] == {"global_lr": 1.0, "variant": "preprint"}
    assert made["optimizer"]["lr"] == pytest.approx(0.032)  # 0.0005 on the sum over a batch of 64
    assert made["data"]["directory"] == "data/fashion-mnist"
    assert made["model"]["name"] == "resnet18"
    assert made["stop"] == {"epochs": 0.0, "until_stopped": True}


def test_e_counts_rounds_so_each_worker_makes_so_many_exchanges_between_two_evaluations() -> None:
    assert values(eval_duration=3)["evaluation"]["every_exchanges"] == 18


@pytest.mark.parametrize(
    ("mode", "dcasgd", "scheme", "rate"),
    [("esync", 0, "esync", 0.2), ("sync", 0, "bsp", 0.1), ("async", 0, "asp", 0.1), ("async", 1, "dcasgd", 0.1)],
)
def test_each_mode_has_its_scheme_and_its_own_rate(mode: str, dcasgd: int, scheme: str, rate: float) -> None:
    made = values(mode=mode, use_dcasgd=dcasgd, learning_rate=0.01, local_lr=0.02, batch_size=10, cpu=1)
    assert (made["run"]["scheme"], made["optimizer"]["lr"]) == (scheme, pytest.approx(rate))
    assert made["cluster"] == {"workers": 6, "device": "cpu"}
    config.build({**made, "data": {"name": "digits"}})


def test_local_is_one_worker_alone() -> None:
    assert values(mode="local")["cluster"]["workers"] == 1


def test_devices_shares_and_large_pictures() -> None:
    made = values(gpu=1, split_by_class=1, network="alexnet", data_type="cifar10")
    assert made["cluster"]["device"] == "cuda:1"
    assert (made["data"]["partition"], made["data"]["resize"]) == ("class", 224)
    assert (made["data"]["name"], made["data"]["directory"]) == ("cifar10", "data/cifar10")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"mode": "esnyc"}, "-m esnyc: must be one of esync, sync, async, local; did you mean 'esync'"),
        ({"network": "resnet18"}, "-n resnet18: must be one of alexnet, resnet18-v1"),
        ({"factor": 3}, "-f 3: give the slow-down of all workers, such as --slowdown"),
        ({"eval_duration": 0}, "-e 0: rounds between two evaluations"),
        ({"data_type": "mnist"}, "-dt mnist: must be one of fashion-mnist, cifar10"),
    ],
)
def test_what_esync_does_not_have_is_refused_in_a_line(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        values(**flags)


def test_what_differs_is_said() -> None:
    _, lines = settings_of(EsyncFlags(mode="sync", use_dcasgd=1, split_by_class=1), 2)
    assert lines[0] == "-m sync is --scheme bsp; -l 0.0005 on the sum over a batch of 64 is --lr 0.032 on the mean"
    assert "in mode sync it does nothing" in lines[1]
    assert "shuffled" in lines[2]
