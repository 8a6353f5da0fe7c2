"""Agents in Ray tasks: one a worker, placed by a placement group, on whatever cluster Ray has or grows to.

The process that the launcher starts is a driver of Ray (`python -m paceline.launch.ray`): it waits until there is room
for all bundles at once, which an autoscaler may have to make, and runs one task a bundle. A task starts the agent as a
process of its own, so that the agent's interpreter, signals and threads are not Ray's. When the driver ends, Ray ends
the tasks, and the kernel the agents with them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError

NAME = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray:
    """`address`: of the cluster; `bundle`: what Ray sets aside for each agent, by resource."""

    address: str = "auto"
    strategy: str = "SPREAD"
    bundle: tuple[tuple[str, float], ...] = (("CPU", 1.0),)
    name: str = NAME
    hint: str = "pip install ray"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        bundle = json.dumps(dict(self.bundle))
        flags = ["--address", self.address, "--strategy", self.strategy, "--bundle", bundle, "--agents", str(agents)]
        return [sys.executable, "-m", "paceline.launch.ray", *flags, "--", *agent]

    def cancel(self) -> list[str]:
        return []  # tasks end with their driver


STRATEGIES = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")


def configured(words: Sequence[str]) -> Ray:
    """From --launcher-args: `address=H:P`, `strategy=PACK`, and resources such as `GPU=1 CPU=2`. Raises ConfigError."""
    address, strategy, bundle = "auto", "SPREAD", {"CPU": 1.0}
    for word in words:
        key, _, value = word.partition("=")
        if key == "address" and value:
            address = value
        elif key == "strategy" and value in STRATEGIES:
            strategy = value
        else:
            try:
                bundle[key] = float(value)
            except ValueError:
                raise ConfigError(
                    f"--launcher-args {word}: write address=HOST:PORT, strategy={'|'.join(STRATEGIES)}, "
                    "or a resource of each worker, such as GPU=1"
                ) from None
    return Ray(address=address, strategy=strategy, bundle=tuple(bundle.items()))


# ---- the driver ------------------------------------------------------------------------------------------
def run_agent(command: list[str], task: int) -> int:
    """In a Ray task: the agent, until it ends; its exit code."""
    from paceline.launch.forkserver import die_with_parent

    environment = {**os.environ, "PACELINE_TASK": str(task)}
    return subprocess.run(command, env=environment, check=False, preexec_fn=die_with_parent).returncode


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="paceline.launch.ray")
    for flag in ("--address", "--strategy", "--bundle", "--agents"):
        parser.add_argument(flag, required=True)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    try:
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    except ModuleNotFoundError:
        print("Ray is not installed here: pip install ray", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bundle: dict[str, Any] = json.loads(given.bundle)
    environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}} if "PYTHONPATH" in os.environ else {}
    try:
        ray.init(address=given.address, log_to_driver=False, runtime_env=environment)
    except (ConnectionError, ValueError, RuntimeError) as error:
        print(f"no Ray cluster at {given.address}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    with contextlib.suppress(SystemExit):
        group = placement_group([bundle] * int(given.agents), strategy=given.strategy)
        ray.get(group.ready())
        task = ray.remote(max_retries=0, num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0))(run_agent)
        others = {key: value for key, value in bundle.items() if key not in ("CPU", "GPU")}
        running = [
            task.options(
                resources=others,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number),
            ).remote(given.command, number)
            for number in range(int(given.agents))
        ]
        while running:
            _, running = ray.wait(running, num_returns=1)
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
