"""One value, `Config`, holds everything that decides what a run does.

The command line builds it (`cli/support/options.py`), `toml_file.py` saves it with the run, and it travels to every
process within the job's spec (`runtime/spec/job_spec.py`). Nobody changes it: what is decided later, such as ports
and shards, lies in the spec beside it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.codec.pipeline.policy import Codecs
from paceline.config.sections import (
    Checkpoint,
    ClusterSettings,
    Compression,
    Data,
    Evaluation,
    GateSettings,
    Model,
    Optimizer,
    Robust,
    RunSettings,
    ScheduleSettings,
    StopSettings,
)
from paceline.core.coordination.lifecycle import OwnResultRule
from paceline.core.paramserver.gradient_check import OFF, GradientCheckPolicy
from paceline.core.paramserver.robust_mean import RobustPolicy
from paceline.core.samples.batch_limits import bounded, sum_of_batches
from paceline.core.scheme import Scheme, make


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Holds everything that decides what a run does, one field a section.

    `parameters` holds the sections of schemes, by scheme and parameter: those of schemes that this run does not use,
    too, for `hybrid` takes its phases' parameters from them.
    """

    run: RunSettings = field(default_factory=RunSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    compression: Compression = field(default_factory=Compression)
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    robust: Robust = field(default_factory=Robust)
    stop: StopSettings = field(default_factory=StopSettings)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)

    def scheme(self) -> Scheme:
        """Returns the scheme with its parameters, in the form that sees whole gradients where clipping needs them.

        Raises ConfigError for a parameter that the scheme does not know or accept.
        """
        own = make(self.run.scheme, self.parameters.get(self.run.scheme, {}))
        # A scheme made of others (hybrid) fills in the sections of those here. The 0 stands for the samples of an
        # epoch, which are known only when the data is loaded.
        own = own.completed(self.parameters, 0)
        return own.with_whole_updates() if self.optimizer.clip_norm and self.cluster.servers > 1 else own

    @property
    def is_script(self) -> bool:
        """Returns True if the workers are somebody's own script, whose model, data and optimizer are not the
        configuration's."""
        return bool(self.run.script)

    @property
    def task(self) -> tuple[str, str]:
        """Returns the names of model and data, for summaries; of a script the name of its file, and ""."""
        if not self.is_script:
            return self.model.name, self.data.name
        words = self.run.script.split()
        return next((Path(word).name for word in words if word.endswith(".py")), (words or ["a script"])[0]), ""

    def steps_each(self, train_samples: int) -> int:
        """Returns the steps that each worker makes on average; 0 where no rule about steps or samples ends the run."""
        in_all = -(-self.stop.samples_of(train_samples) // self.batches_of_all())
        return min(filter(None, (in_all, self.stop.steps)), default=0)

    def scheme_of(self, train_samples: int) -> Scheme:
        """Returns the scheme as it runs on a training set of that size: phases in samples, rounds that fit the run."""
        own, steps = self.scheme().completed({}, train_samples), self.steps_each(train_samples)
        return own.for_run(steps, self.parameters.get(self.run.scheme, {})) if steps else own

    def codecs(self, of: Scheme | None = None) -> Codecs:
        """Returns the codecs of what workers and servers send, under the scheme `of`."""
        return Codecs(**dataclasses.asdict(self.compression)).or_that_of(of or self.scheme())

    def gate_policy(self) -> GradientCheckPolicy:
        """Returns the rule by which servers reject gradients, made of the section `[gate]`."""
        return GradientCheckPolicy(**dataclasses.asdict(self.gate))

    def own_result_rule(self) -> OwnResultRule:
        """Returns who is expelled for results that no server sees, by the same section."""
        strikes = 0 if self.gate.mode == OFF else self.gate.strikes
        return OwnResultRule(strikes=strikes, workers_min=self.cluster.min_workers)

    def robust_policy(self) -> RobustPolicy:
        """Returns the rule of robust means, made of the section `[robust]`."""
        return RobustPolicy(**dataclasses.asdict(self.robust))

    def slowdown_of(self, rank: int) -> float:
        """Returns how many times slower worker `rank` is made to be; 1.0 where nothing is emulated."""
        return self.cluster.slowdown[rank] if self.cluster.slowdown else 1.0

    def batch_limits(self) -> tuple[int, ...]:
        """Returns the largest batch of each worker, by rank, 0 for any; () where nobody has one."""
        limits = self.cluster.batch_limits
        limits = limits * self.cluster.workers if len(limits) == 1 else limits
        return limits if any(limits) else ()

    def batch_limit_of(self, rank: int) -> int:
        """Returns the largest batch of worker `rank`; 0 for any."""
        limits = self.batch_limits()
        return limits[rank] if limits else 0

    def batch_of(self, rank: int) -> int:
        """Returns the samples of a mini-batch of worker `rank`."""
        return bounded(self.data.batch_size, self.batch_limit_of(rank))

    def batches_of_all(self) -> int:
        """Returns the samples of a mini-batch of each worker."""
        return sum_of_batches(self.data.batch_size, self.batch_limits(), self.cluster.workers)

    def device_of(self, rank: int) -> str:
        """Returns the device of worker `rank`; one name stands for all workers."""
        devices = self.cluster.device.split(",")
        return devices[rank] if len(devices) > 1 else devices[0]

    def ranks_of(self, rank: int) -> int:
        """Returns how many processes worker `rank` has; one number stands for all workers."""
        ranks = self.cluster.ranks.split(",")
        return int(ranks[rank] if len(ranks) > 1 else ranks[0])


SECTIONS: dict[str, Any] = {
    name: hint for name, hint in get_type_hints(Config).items() if dataclasses.is_dataclass(hint)
}
"""The sections by name, each with its class; those of schemes are added where they are needed."""
