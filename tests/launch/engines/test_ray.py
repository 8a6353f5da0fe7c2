"""What Ray is asked for: an address, a placement strategy, resources per worker."""

from __future__ import annotations

import json
from collections.abc import Sequence

from paceline.launch.engines.ray import configured

AGENT = ["python", "-m", "agent"]


def flag(command: Sequence[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_ray_gets_an_address_a_strategy_and_what_each_worker_needs() -> None:
    command = configured(["address=h1:6379", "GPU=1", "strategy=PACK"], servers=2).command(2, AGENT)
    assert command[1:3] == ["-m", "paceline.launch.engines.ray"]
    assert json.loads(flag(command, "--bundles")) == [{"CPU": 1, "GPU": 1}] * 2
    assert flag(command, "--address") == "h1:6379"
    assert "--labels" not in command
    assert command[-4:] == ["--", *AGENT]


def test_ray_puts_workers_and_servers_on_nodes_of_their_own_by_resources_and_labels() -> None:
    engine = configured(["GPU=1", "label=accelerator:H200", "server.CPU=4", "server.label=kind:cpu"], servers=2)
    assert engine.apart == 2
    command = engine.command(3, AGENT)
    assert json.loads(flag(command, "--bundles")) == [{"CPU": 4}, {"CPU": 4}, {"CPU": 1, "GPU": 1}]
    assert json.loads(flag(command, "--labels")) == [{"kind": "cpu"}] * 2 + [{"accelerator": "H200"}]
