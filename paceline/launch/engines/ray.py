"""Starts agents in Ray actors: one for each worker, placed by a placement group, on whatever cluster Ray has or grows
to.

The process that the launcher starts is a driver of Ray (`python -m paceline.launch.engines.ray`): it waits until
there is room for all bundles at once, which an autoscaler may have to make, and has one actor a bundle. An actor
starts the agent as a process of its own, so that the agent's interpreter, signals and threads are not Ray's. When
the driver ends, Ray ends the actors, and the kernel the agents with them. Actors are used and not tasks, because Ray
reports at once that an actor's node has died.

An agent that dies is started again, in its bundle; Ray puts that on another node when its own has died, one that
joins later if there is no room before. It calls the launcher as the first one did, and takes its place in the run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.files.helper_command import helper_command

NAME = "ray"
STRATEGIES = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
"""How Ray places the bundles of a placement group: on many nodes, or on few."""
SHORT_SECONDS = 5.0
SHORT_RUNS_MAX = 3
"""Ends within SHORT_SECONDS, in a row, after which an agent is not started again: the cause would end it again."""
SERVER = "server."
"""Resources of servers begin with this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Says what Ray reserves for an agent, by resource, and which labels its node needs."""

    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray:
    """Describes a cluster. `worker`, `server`: their bundles; the first `apart` agents are for servers only."""

    address: str = "auto"
    strategy: str = "SPREAD"
    worker: Bundle = field(default_factory=Bundle)
    server: Bundle = field(default_factory=Bundle)
    apart: int = 0
    name: str = NAME
    hint: str = "pip install ray"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        """Returns the command of the driver that keeps `agents` agents."""
        places = [self.server] * self.apart + [self.worker] * (agents - self.apart)
        bundles = json.dumps([dict(place.resources) for place in places])
        flags = ["--address", self.address, "--strategy", self.strategy, "--bundles", bundles]
        if any(place.labels for place in places):
            flags += ["--labels", json.dumps([dict(place.labels) for place in places])]
        return helper_command("paceline.launch.engines.ray", *flags, "--", *agent)

    def cancel(self) -> list[str]:
        """Returns nothing to cancel: actors end with their driver."""
        return []  # actors end with their driver


def configured(words: Sequence[str], servers: int = 0) -> Ray:
    """Reads --launcher-args: `address=H:P`, `strategy=PACK`, resources of workers such as `GPU=1`, `label=KEY:VALUE`.

    A label is one of nodes. With `server.` before resources or labels servers have agents of their own.
    Raises ConfigError.
    """
    found = {"address": "auto", "strategy": "SPREAD"}
    worker, server = Bundle(), Bundle()
    apart = 0
    for word in words:
        key, _, value = word.partition("=")
        if (key == "address" and value) or (key == "strategy" and value in STRATEGIES):
            found[key] = value
        elif key.startswith(SERVER):
            server, apart = _with(server, key.removeprefix(SERVER), value, word), servers
        else:
            worker = _with(worker, key, value, word)
    return Ray(**found, worker=worker, server=server, apart=apart)


def _with(place: Bundle, key: str, value: str, word: str) -> Bundle:
    """Returns `place` with one more resource or label. Raises ConfigError for a word that is neither."""
    if key == "label" and ":" in value:
        name, _, of = value.partition(":")
        return Bundle(resources=place.resources, labels={**place.labels, name: of})
    with contextlib.suppress(ValueError):
        return Bundle(resources={**place.resources, key: float(value)}, labels=place.labels)
    raise ConfigError(
        f"--launcher-args {word}: write address=HOST:PORT, strategy={'|'.join(STRATEGIES)}, a resource of each worker "
        "such as GPU=1, label=KEY:VALUE of its nodes, or the same for servers, server.CPU=1"
    )


# ---- the driver ------------------------------------------------------------------------------------------
class ActorKeeper:
    """Keeps an agent, as an actor of Ray."""

    def run(self, command: list[str], task: int) -> int:
        """Runs the agent until it ends; returns its exit code."""
        from paceline.launch.local.fork_server import die_with_parent

        environment = {**os.environ, "PACELINE_TASK": str(task)}
        return subprocess.run(command, env=environment, check=False, preexec_fn=die_with_parent).returncode


class AgentRestarts:
    """Decides which agents are started again: all that have not ended in order, unless they keep ending soon."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._began, self._short = now, dict[int, float](), Counter[int]()

    def begins(self, number: int) -> None:
        """Notes that agent `number` begins."""
        self._began[number] = self._now()

    def again(self, number: int, why: str) -> bool:
        """Returns True if agent `number` is to be started again, whose incarnation has ended; in order if there is no
        `why`."""
        short = self._now() - self._began[number] < SHORT_SECONDS
        self._short[number] = self._short[number] + 1 if short else 0
        return bool(why) and self._short[number] < SHORT_RUNS_MAX


def main(arguments: list[str]) -> int:
    """Runs the driver; returns its exit code."""
    parser = argparse.ArgumentParser(prog="paceline.launch.engines.ray")
    for flag in ("--address", "--strategy", "--bundles"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--labels")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    try:
        import ray
    except ModuleNotFoundError:
        print("Ray is not installed here: pip install ray", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}} if "PYTHONPATH" in os.environ else {}
    try:
        ray.init(address=given.address, log_to_driver=False, runtime_env=environment)
    except (ConnectionError, ValueError, RuntimeError) as error:
        print(f"no Ray cluster at {given.address}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    with contextlib.suppress(SystemExit):
        _run(ray, given)
    ray.shutdown()
    return 0


def _run(ray: Any, given: argparse.Namespace) -> None:
    """Keeps the agents until all have ended, and none is to be started again."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundles: list[dict[str, float]] = json.loads(given.bundles)
    labels = {"bundle_label_selector": json.loads(given.labels)} if given.labels else {}
    group = placement_group(bundles, strategy=given.strategy, **labels)
    ray.get(group.ready())
    incarnations, running = AgentRestarts(time.monotonic), dict[Any, tuple[int, Any]]()

    def start(number: int) -> None:
        """Starts the actor of a bundle, which runs one agent until that ends."""
        bundle = dict(bundles[number])
        incarnations.begins(number)
        kind = ray.remote(max_restarts=0, num_cpus=bundle.pop("CPU", 0), num_gpus=bundle.pop("GPU", 0))(ActorKeeper)
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number)
        actor = kind.options(resources=bundle, scheduling_strategy=where).remote()
        running[actor.run.remote(given.command, number)] = (number, actor)

    for number in range(len(bundles)):
        start(number)
    while running:
        (ended,), _ = ray.wait([*running], num_returns=1)
        number, actor = running.pop(ended)
        why = _why(ray, ended)
        ray.kill(actor)  # it would hold its room, which the next one needs
        if incarnations.again(number, why):
            print(f"agent {number} is started again: {why}", flush=True)
            start(number)


def _why(ray: Any, incarnation: Any) -> str:
    """Returns what ended it; the text is empty where it ended in order."""
    try:
        code = ray.get(incarnation)
    except ray.exceptions.RayError as error:
        return str(error).splitlines()[0]
    return f"it ended with {code}" if code else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
