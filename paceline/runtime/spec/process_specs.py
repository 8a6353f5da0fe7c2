"""Makes the specs of a run: what each party has to know to take part, and what the run's first lines say of that."""

from __future__ import annotations

import dataclasses

from paceline.checkpoint.redis_url import StoreSecrets
from paceline.config import Config
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.runtime.spec.process_spec import ProcessSpec


def make_specs(
    config: Config,
    coordinator: str,
    token: str,
    folder: str,
    *,
    credentials: str,
    resume: str,
    evaluator: bool,
    store_secrets: StoreSecrets,
) -> dict[Party, ProcessSpec]:
    """Returns the spec of each party, in the order in which they are started; also of workers that may join later.

    Servers come first, since workers connect to them. `coordinator`: its address. `credentials`: the folder of the
    keys, or "". `resume`: the checkpoint to go on from. `evaluator`: whether the run has one. The store's secrets go
    to the evaluator alone, which writes checkpoints.
    """
    cluster = config.cluster
    if cluster.beginning < cluster.workers:  # others come later, and only servers can have been there all along
        config = dataclasses.replace(config, cluster=dataclasses.replace(cluster, allreduce="servers"))

    def spec(who: Party, rank: int | None = None) -> ProcessSpec:
        """Returns the specification of one party; `rank` is that of a worker."""
        return ProcessSpec(
            party=str(who),
            workers=cluster.workers,
            servers=cluster.servers,
            coordinator=coordinator,
            token=token,
            folder=folder,
            device="cpu" if rank is None else config.device_of(rank),
            step_seconds=0.0 if rank is None else cluster.step_ms / 1000 * config.slowdown_of(rank),
            bind=cluster.bind,
            credentials=credentials,
            resume=resume,
            config=config,
        )

    specs = [spec(party.server(shard)) for shard in range(cluster.servers)]
    specs += [spec(party.worker(rank), rank) for rank in range(cluster.workers)]
    if evaluator:
        specs.append(dataclasses.replace(spec(party.EVALUATOR), store_secrets=store_secrets))
    return {spec.who: spec for spec in specs}


def overlap_note(config: Config, plan: control.Plan) -> str:
    """Returns why workers do not communicate while they compute, where they otherwise would; "" if there is nothing to
    say."""
    sliced = len(plan.layout.slices) > 1 and not config.cluster.step_ms
    if config.cluster.overlap != "auto" or not plan.crowded or not sliced:
        return ""
    return f"workers compute first and communicate then: {plan.crowded} (--overlap)"
