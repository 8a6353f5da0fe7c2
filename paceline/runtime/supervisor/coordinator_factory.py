"""Makes a run's coordinator, with the rules that its configuration gives.

`live/coordinator` knows no configuration: this translates the sections into its sizes, rules and choices.
"""

from __future__ import annotations

import functools
import math

from paceline.core.coordination.lifecycle import RunRules, RunSize, StopRule
from paceline.core.coordination.server_recovery import Snapshots
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.executor import CoordinatorListener
from paceline.live.coordinator.inputs import NO_OBSERVER, CoordinatorObserver
from paceline.live.coordinator.planning import RunChoices
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Transport
from paceline.runtime.collectives.choice import choose_allreduce
from paceline.runtime.spec.coordinator_setup import CoordinatorSetup
from paceline.runtime.spec.job_spec import check_batch_limits, coordinator_role
from paceline.runtime.spec.shard_layout import lay_out


def make_coordinator(
    transport: Transport,
    node: Node,
    listener: CoordinatorListener,
    snapshots: Snapshots,
    setup: CoordinatorSetup,
    observer: CoordinatorObserver = NO_OBSERVER,
) -> Coordinator:
    """Returns the coordinator of a run, which has not opened its port yet. `observer` hears inputs and decisions."""
    config, trains, train_samples = setup.config, setup.trains, setup.train_samples
    cluster, stop = config.cluster, config.stop
    not_started = range(cluster.beginning, cluster.workers)
    choices = RunChoices(
        make_role=coordinator_role,
        choose_allreduce=functools.partial(
            choose_allreduce, wanted="servers" if not_started else cluster.allreduce, secured=cluster.secured
        ),
        lay_out=functools.partial(lay_out, shards=cluster.shards, slice_mb=cluster.slice_mb),
        check=check_batch_limits,
        batch_limits=config.batch_limits(),
    )
    rules = RunRules(
        stop=StopRule(
            samples=(stop.samples_of(train_samples) if trains else stop.samples) or None,
            epochs=None if trains else stop.epochs or None,
            behind=setup.behind,
            contribution=config.scheme().most_samples(config.data.batch_size, cluster.workers) if trains else 0,
            epoch_samples=train_samples if trains else 0,
            seconds=stop.seconds or None,
            target_accuracy=stop.target_accuracy or None,
            counted=stop.counted(train_samples if trains else 0),
        ),
        seed=config.run.seed,
        dead_after_s=cluster.dead_after,
        stuck_after_s=cluster.stuck_after or math.inf,
        start_after_s=cluster.connect_timeout,
        min_workers=cluster.min_workers,
        done=setup.done,
        shares=setup.shares,
        own_results=config.own_result_rule(),
        own_loops=not trains,
        model_on_servers=config.scheme().model_of(cluster.servers) == "servers",
    )
    size = RunSize(cluster.workers, cluster.servers, setup.evaluator, not_started)
    return Coordinator(transport, node, listener, size, choices, rules, snapshots, observer=observer)
