"""Estimates what a scheme would be worth on a cluster: by a short run, and by how much memory its roles hold on to.

`paceline advise` calls `look` for each scheme.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from paceline.config import StopSettings
from paceline.core.vector import Ghost, Vector
from paceline.observe.terminal.advice import Prospect
from paceline.observe.terminal.progress import ProgressDisplay
from paceline.runtime.simulated.setup import Rounds, SimulationSetup
from paceline.runtime.simulated.simulated_run import VirtualRun

ROUNDS = 40
"""Steps of the slowest worker after which the pace is known, where it has made EXCHANGES by then."""
EXCHANGES = 10
"""Exchanges of each worker: what it does after its last one is in no model, and counts as lost."""
STEPS_MAX = 1000
"""Steps of a worker after which nobody waits for its exchanges."""
EVENTS_MAX = 400_000
"""Events after which a look ends: thousands of workers show their pace in fewer rounds."""


def look(setting: SimulationSetup, display: ProgressDisplay) -> Prospect:
    """Returns the prospect of a scheme: a short look where nothing is trained, a whole run where the model is.

    Bytes are those of float32 vectors. Raises PacelineError when the scheme cannot run on such a cluster.
    """
    if setting.timing_only:
        # Whatever ends a training, here it is enough to have seen the pace.
        stop = StopSettings(epochs=0.0, seconds=setting.config.stop.seconds)
        config = replace(setting.config, stop=stop)
        setting = replace(
            setting, config=config, rounds=Rounds(ROUNDS, min(EXCHANGES, ROUNDS), STEPS_MAX), events_max=EVENTS_MAX
        )
    run = VirtualRun(setting, display)
    summary = run.run(leave=False)
    scheme, servers = run.simulation.scheme, setting.cluster.servers
    length, remembered = run.model_length, run.remembered
    # A worker's module has its weights and its gradient in any case.
    of_worker = 8 * length + max(held(run.simulation.worker(0)), 4 * length)
    of_server = max((held(run.simulation.server(shard)) for shard in range(servers)), default=0)
    if scheme.trains_locally or not scheme.server(servers):
        of_worker += 4 * remembered
    elif servers:
        of_server += 4 * remembered // servers
    return Prospect(
        summary=summary,
        worker_bytes=of_worker,
        server_bytes=of_server,
        local=scheme.trains_locally,
        own_models=scheme.model_of(servers) == "mean of workers",
        spacing=run.spacing,
        unseen=scheme.unseen(run.simulation.worker(0)),
    )


def held(thing: Any, seen: set[int] | None = None) -> int:
    """Returns the bytes of the vectors that a role refers to. Ghosts are not told apart, so every mention of one
    counts."""
    seen = set() if seen is None else seen
    if isinstance(thing, Ghost):
        return thing.nbytes
    if isinstance(thing, str | bytes | int | float | None) or id(thing) in seen or callable(thing):
        return 0
    seen.add(id(thing))
    if isinstance(thing, Vector):
        return int(thing.nbytes)
    return sum(held(part, seen) for part in _parts(thing))


def _parts(thing: Any) -> Iterable[Any]:
    """Returns what a container, a record or an object refers to."""
    if isinstance(thing, Mapping):
        return thing.values()
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    if dataclasses.is_dataclass(thing):
        return [getattr(thing, f.name) for f in dataclasses.fields(thing)]
    return [value for name, value in getattr(thing, "__dict__", {}).items() if name not in ("place", "scheme", "rng")]
