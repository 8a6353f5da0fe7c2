"""Command lines of SpeeDO as words of `paceline train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.compat.speedo.command_line import (
    SpeedoFlags,
    environment_of,
    leader_of,
    read_solver,
    started,
    translated,
)
from paceline.core.errors import ConfigError
from paceline.core.phases.grammar import parse
from tests.compat.speedo.nets import LENET, SOLVER, written


def words(folder: Path, net: str = LENET, solver: str = SOLVER, **flags: Any) -> dict[str, str]:
    """The words of `paceline train` by name."""
    path = str(written(folder, net, solver))
    given = {"worker": 4, "max_iter": 100, **flags}
    made, _ = translated(SpeedoFlags(solver=path, **given), read_solver(path), "own.py")
    return dict(zip(made[::2], made[1::2], strict=True))


def test_the_solver_and_the_net_say_what_the_flags_do_not(tmp_path: Path) -> None:
    made = words(tmp_path)
    assert (made["--lr"], made["--momentum"], made["--weight-decay"]) == ("0.1", "0", "0.0005")
    assert (made["--batch-size"], made["--device"], made["--seed"]) == ("64", "cpu", "3")
    assert (made["--model"], made["--data"]) == ("own.py:net", "own.py:data")
    made = words(tmp_path, lr=0.5, momentum=0.9, weight_decay=0.0, batch=10, device=1)
    assert (made["--lr"], made["--momentum"], made["--batch-size"]) == ("0.5", "0.9", "10")
    assert made["--device"] == "cuda:1"


@pytest.mark.parametrize(
    ("flags", "scheme", "own"),
    [
        ({}, "asp", {"payload": "delta", "steps": "1"}),
        ({"train": 5, "factor": 4.0}, "asp", {"payload": "delta", "steps": "5", "factor": "4.0"}),
        ({"gradient_only": True}, "asp", {"payload": "gradient"}),
        ({"moving_rate": 0.5, "train": 10}, "asp", {"payload": "weights", "alpha": "0.5", "steps": "10"}),
        ({"sync": True}, "bsp", {"payload": "delta"}),
        ({"sync": True, "moving_rate": 0.5}, "bsp", {"payload": "delta"}),
        ({"max_advance": 3}, "partial", {"max-advance": "3", "payload": "delta"}),
        ({"weedout": 6, "moving_rate": 0.2}, "weedout", {"window": "6", "payload": "weights", "alpha": "0.2"}),
        ({"weedout": 6, "max_advance": 3, "sync": True}, "weedout", {"window": "6"}),
    ],
)
def test_strategies_are_schemes_in_speedos_own_order(
    flags: dict[str, Any], scheme: str, own: dict[str, str], tmp_path: Path
) -> None:
    made = words(tmp_path, **flags)
    assert made["--scheme"] == scheme
    assert {name: made[f"--{scheme}.{name}"] for name in own} == own


def test_merges_become_samples_and_exchanges(tmp_path: Path) -> None:
    made = words(tmp_path, test=10, train=2)
    assert (made["--total-samples"], made["--eval-every-exchanges"]) == (str(100 * 64 * 2), "10")
    made = words(tmp_path, test=10, sync=True)  # of all four workers
    assert (made["--total-samples"], made["--eval-every-exchanges"]) == (str(100 * 64 * 4), "40")
    made = words(tmp_path, test=0, max_iter=None)
    assert made["--total-samples"] == str(500 * 64)  # max_iter of the solver
    assert "--eval-every-exchanges" not in made


def test_hybrid_phases_are_read_with_their_own_flags(tmp_path: Path) -> None:
    given = [
        "=maxIter",
        "100",
        "=sync",
        "==",
        "=maxIter",
        "200",
        "=test",
        "100",
        "=train",
        "2",
        "==",
        "=maxIter",
        "300",
        "=weedout",
        "3",
        "=movingRate",
        "0.5",
    ]
    text = words(tmp_path, hybrid=tuple(given))["--hybrid.phases"]
    first, second, last = parse(text)
    assert (first.scheme, first.until) == ("bsp", ((("steps", 100.0)),))
    assert (second.scheme, second.until) == ("asp", ((("steps", 100.0)),))  # 200 merges of 2 steps by 4 workers
    assert last.scheme == "weedout"
    assert last.parameters["payload"] == "weights"
    for wrong, said in (("=sync == =maxIter 2", "phase 1: has no =maxIter"), ("=maxIter 2 =fast", "=fast is not here")):
        with pytest.raises(ConfigError, match=said):
            words(tmp_path, hybrid=tuple(wrong.split()))


@pytest.mark.parametrize(
    ("solver", "flags", "said"),
    [
        (SOLVER.replace('"fixed"', '"step"'), {}, "lr_policy step: change it to fixed, and give --schedule step"),
        (SOLVER + 'type: "AdaDelta"', {}, "solver type AdaDelta: only SGD is read"),
        (SOLVER + "iter_size: 2", {}, "give the whole batch with --batch"),
        (SOLVER.replace("max_iter: 500", ""), {"max_iter": None}, "--maxIter: give the number of merges"),
        (SOLVER.replace("net:", "nets:"), {}, "names no net"),
        (SOLVER, {"others": {"snapshot": "x"}}, "--snapshot: weights of Caffe are not read"),
        (SOLVER, {"others": {"skip": "0.5"}}, "--skip: layers are not skipped"),
    ],
)
def test_what_is_not_here_is_refused_with_a_way_out(
    solver: str, flags: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        words(tmp_path, solver=solver, **flags)


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    flags = SpeedoFlags(solver=path, worker=2, max_iter=5, others={"redis": "localhost", "drop": "3"})
    _, lines = translated(flags, read_solver(path), "own.py")
    assert lines[0].startswith("--redis: weights do not travel by Redis")
    assert "SpeeDO reads only --weedout" in lines[1]


def test_a_strategy_may_stand_in_place_of_the_solver() -> None:
    made, _ = translated(SpeedoFlags(solver="easgd", max_iter=5, batch=8), read_solver("easgd"), "")
    assert made[made.index("--asp.alpha") + 1] == "0.5"
    assert "--model" not in made


def test_words_of_java_and_of_the_docker_image_become_flags() -> None:
    assert started(["java", "-cp", "S.jar", "com.htc.speedo.akka.AkkaUtil", "--solver", "s"]) == ["--solver", "s"]
    assert started(["master", "10.0.0.1", "3", "--test", "0"]) == [
        "--host",
        "10.0.0.1",
        "--worker",
        "3",
        "--port",
        "56126",
        "--test",
        "0",
    ]
    assert started(["worker", "akka.tcp://x", "10.0.0.2"]) == ["--master", "akka.tcp://x", "--host", "10.0.0.2"]
    with pytest.raises(ConfigError, match="name SpeeDO's class"):
        started(["java", "-jar", "x"])


def test_a_port_makes_a_master_and_an_akka_address_a_worker() -> None:
    flags = SpeedoFlags(solver="s", worker=3)
    assert environment_of(flags, "10.0.0.1", 0, "") == {}
    leads = environment_of(flags, "10.0.0.1", 5000, "")
    assert leads == {"PACELINE_ROLE": "scheduler", "PACELINE_LEADER": "10.0.0.1:5000", "PACELINE_WORKERS": "3"}
    assert leader_of("akka.tcp://SpeeDO@10.0.0.1:5000/user/host") == "10.0.0.1:5000"
    assert leader_of("10.0.0.1") == "10.0.0.1:56126"
    with pytest.raises(ConfigError, match="start the command once for each worker"):
        environment_of(flags, "", 0, "10.0.0.1:5000")
    with pytest.raises(ConfigError, match="must be akka"):
        leader_of("???")
