"""Lets the processes of `paceline launch` join again: each further `join` is a part of the run, with its own cluster.

A script trains the head, then everything; it trains k folds, or tries again with half the batch. Its processes stay, so
nobody has to start them: they meet as processes do that somebody else has started (`paceline.launch.external`). Rank 0
brings the coordinator and the servers, and leaves a summary and a trace in RUN/part-2, RUN/part-3, ...

    part 1     the command started these workers                  ranks 0, 1, 2, 3
    part 2     those that ended part 1; worker 2 had been lost    ranks 0, 1, 3 are 0, 1, 2 now
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import os
from typing import Any

from paceline.core.errors import ConfigError
from paceline.launch.exit_hook import ScriptExit
from paceline.launch.external.detect import PART, WORKER, ExternalProcess
from paceline.launch.external.follower import of_script, register, start_leader
from paceline.launch.local.environment import run_folder_from, settings_from
from paceline.live.addresses import is_loopback
from paceline.runtime.spec.process_spec import ProcessSpec


@dataclasses.dataclass(frozen=True, slots=True)
class RunPart:
    """Describes one part of a run, as a worker takes part in it. lost: ranks of workers that did not see its end."""

    spec: ProcessSpec
    number: int
    lost: frozenset[int]

    def next(self) -> tuple[ProcessSpec, ScriptExit]:
        """Returns the place of this worker in the next part, once all others have come to it. Raises ConfigError."""
        if not is_loopback(self.spec.bind):
            raise self.joins_once("workers of several hosts")
        here = [rank for rank in range(self.spec.workers) if rank not in self.lost]
        rank, number = here.index(self.spec.who.index), self.number + 1
        external = ExternalProcess(
            starter=f"{PART}{number}",
            kind=WORKER,
            number=rank,
            leads=rank == 0,
            workers=len(here),
            servers=self.spec.servers,
            host="",
            port=0,
            job=f"{PART}{number}-{hashlib.sha256(self.spec.token.encode()).hexdigest()[:16]}",
        )
        place = register(external, start_leader(external, self._settings(number), trains=False) if not rank else None)
        end = ScriptExit()
        atexit.register(lambda: place.leave(end.code))
        mine = {
            name: getattr(self.spec, name)
            for name in ("device", "slot", "step_seconds", "batch_limit", "part_size", "bind")
        }
        return dataclasses.replace(place.spec, **mine), end

    def joins_once(self, who: str) -> ConfigError:
        """Returns the error for a process that cannot join again."""
        return ConfigError(
            f"this process is {self.spec.party} of its run already, and {who} have one paceline.join: give several "
            "models to one, join({name: model, ...}, {name: optimizer, ...}), or take another command for the next part"
        )

    def _settings(self, number: int) -> dict[str, dict[str, Any]]:
        """Returns those of the run, as the command has put them into the environment, and the folder of the part."""
        values = settings_from(os.environ)
        folder = run_folder_from(os.environ)
        of_run = {**of_script()["run"], **({"out": os.path.join(folder, f"{PART}{number}")} if folder else {})}
        stop = {**of_script()["stop"], **values.get("stop", {})}
        return {**values, "run": {**values.get("run", {}), **of_run}, "stop": stop}
