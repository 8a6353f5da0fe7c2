"""One value holds everything that decides what a run does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.codec.pipeline.policy import Codecs
from paceline.config import validation
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
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.paramserver.robust_mean import RobustPolicy
from paceline.core.scheme import Scheme, make


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Holds everything that decides what a run does.

    `parameters`: the section of each scheme, by scheme and parameter.
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
        """Returns the scheme with its parameters; in the form that sees whole gradients where clipping needs them."""
        own = make(self.run.scheme, self.parameters.get(self.run.scheme, {}))
        own = own.completed(self.parameters, 0)
        return own.with_whole_updates() if self.optimizer.clip_norm and self.cluster.servers > 1 else own

    @property
    def is_script(self) -> bool:
        """Are the workers somebody's own script? Its model, data and optimizer are not those of the configuration."""
        return bool(self.run.script)

    @property
    def task(self) -> tuple[str, str]:
        """Names of model and data, for summaries; of a script its file, and nothing."""
        if not self.is_script:
            return self.model.name, self.data.name
        words = self.run.script.split()
        return next((Path(word).name for word in words if word.endswith(".py")), (words or ["a script"])[0]), ""

    def codecs(self) -> Codecs:
        return Codecs(**dataclasses.asdict(self.compression))

    def gate_policy(self) -> GradientCheckPolicy:
        return GradientCheckPolicy(**dataclasses.asdict(self.gate))

    def robust_policy(self) -> RobustPolicy:
        return RobustPolicy(**dataclasses.asdict(self.robust))

    def slowdown_of(self, rank: int) -> float:
        """Returns how many times slower worker `rank` is made to be."""
        return self.cluster.slowdown[rank] if self.cluster.slowdown else 1.0

    def device_of(self, rank: int) -> str:
        """Returns the device of worker `rank`; one name stands for all workers."""
        devices = self.cluster.device.split(",")
        return devices[rank] if len(devices) > 1 else devices[0]

    def check(self) -> Config:
        """Returns itself. Raises ConfigError for settings that contradict one another."""
        validation.check(self)
        return self


SECTIONS: dict[str, Any] = {
    name: hint for name, hint in get_type_hints(Config).items() if dataclasses.is_dataclass(hint)
}
"""The sections by name, each with its class; those of schemes are added where they are needed."""
