"""Makes a run's coordinator, with the rules that its configuration gives.

`live/coordinator` knows no configuration: this translates the sections into its sizes, rules and choices.
"""

from __future__ import annotations

import functools
import math

from paceline.config import Config
from paceline.core.coordination.lifecycle import RunRules, RunSize, StopRule
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.effects import Data
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.executor import CoordinatorListener
from paceline.live.coordinator.planning import RunChoices
from paceline.live.node.node import Node
from paceline.live.protocol.transport import Transport
from paceline.runtime.collectives.choice import choose_allreduce
from paceline.runtime.spec.job_spec import coordinator_role
from paceline.runtime.spec.shard_layout import lay_out


def make_coordinator(
    transport: Transport,
    node: Node,
    listener: CoordinatorListener,
    snapshots: Snapshots,
    *,
    config: Config,
    train_samples: int,
    evaluator: bool,
    trains: bool,
    done: Data = (),
    behind: int = 0,
) -> Coordinator:
    """Returns the coordinator of a run, which has not opened its port yet.

    trains         the run is of `paceline train`, and not of a loop of one's own
    train_samples  of the data set, by which epochs are counted
    done           leased samples of an earlier incarnation of the run
    behind         samples that it had trained
    """
    cluster, stop = config.cluster, config.stop
    not_started = range(cluster.beginning, cluster.workers)
    choices = RunChoices(
        make_role=coordinator_role,
        choose_allreduce=functools.partial(
            choose_allreduce, wanted="servers" if not_started else cluster.allreduce, secured=cluster.secured
        ),
        lay_out=functools.partial(lay_out, shards=cluster.shards, slice_mb=cluster.slice_mb),
    )
    rules = RunRules(
        stop=StopRule(
            samples=(stop.samples_of(train_samples) if trains else stop.samples) or None,
            epochs=None if trains else stop.epochs or None,
            behind=behind,
            contribution=config.scheme().most_samples(config.data.batch_size, cluster.workers) if trains else 0,
            epoch_samples=train_samples if trains else 0,
            seconds=stop.seconds or None,
            target_accuracy=stop.target_accuracy or None,
        ),
        seed=config.run.seed,
        dead_after_s=cluster.dead_after,
        stuck_after_s=cluster.stuck_after or math.inf,
        min_workers=cluster.min_workers,
        done=done,
        model_on_servers=config.scheme().model_of(cluster.servers) == "servers",
    )
    size = RunSize(cluster.workers, cluster.servers, evaluator, not_started)
    return Coordinator(transport, node, listener, size, choices, rules, snapshots)
