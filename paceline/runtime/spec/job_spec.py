"""Describes what all workers of a run have to agree on; worker 0's recipe goes to everybody, by names and numbers.

Each worker sends the digest of its recipe with `Ready`; the coordinator fails a run in which two differ, for such
workers would average different things. Worker 0's recipe then travels as JSON within the `Plan`, and servers make
their scheme and update rule of it. So no code and no pickle travels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from paceline.codec.pipeline.policy import Codecs
from paceline.core.coordination.control_messages import Plan
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.paramserver.robust_mean import NONE, RobustPolicy
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme, make
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.runtime.kvstore.store_spec import StoreSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Describes a run to all its processes: scheme, update rule, codecs and checks of gradients.

    rate_factors: by phase of the scheme, what updates multiply the optimizer's rate with (`rate_scale.py`).
    rate_why: the reason for that, which the user reads.
    store: set where the servers hold keys and values instead of a model.
    loaded: all workers have loaded a state, and servers take their part of it.
    moment: the round that loaded states are of, where workers hold the model and meet in rounds.
    begun: worker 0's optimizer remembers earlier steps; it may be the only one.
    """

    scheme: str
    parameters: dict[str, Any] = field(default_factory=dict)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    rate_factors: tuple[float, ...] = (1.0,)
    rate_why: str = ""
    seed: int = 0
    codecs: Codecs = field(default_factory=Codecs)
    gate: GradientCheckPolicy = field(default_factory=GradientCheckPolicy)
    robust: RobustPolicy = field(default_factory=RobustPolicy)
    store: StoreSpec | None = None
    loaded: bool = False
    moment: int = 0
    begun: bool = False

    def make_scheme(self) -> Scheme:
        """Returns the scheme with its parameters. Raises ConfigError for an unknown scheme or a bad parameter."""
        return make(self.scheme, self.parameters)

    def make_rule(self, tensors: Sequence[int] = ()) -> Any:
        """Returns the rule that turns a gradient into new weights; without momentum where the scheme has its own.

        `tensors`: lengths of the tensors that the weights are made of, for rules that need whole ones (LARS).

        Raises ConfigError for a bad optimizer or schedule.
        """
        from paceline.engine.optim.optimizers import make_rule  # here, as the supervisor has no use for torch

        return self.scaled(make_rule(self.of_rule(self.optimizer), self.schedule, tensors))

    def scaled(self, rule: Any) -> Any:
        """Returns `rule`, a `ServerOptimizer`, at the rate that updates have in this run."""
        rule.rate_factors = self.rate_factors
        rule.enter_phase(0)
        return rule

    def of_rule(self, optimizer: OptimizerRecipe) -> OptimizerRecipe:
        """Returns `optimizer`, without momentum where the scheme has one of its own, which would otherwise act
        twice."""
        own = self.make_scheme().own_momentum and optimizer.name == "sgd"
        return optimizer.without_momentum() if own else optimizer

    def by_rows(self, servers: int) -> bool:
        """Returns True if gradients of sparse embeddings may travel as rows without any effect on the result.

        They may where servers apply gradients, by a rule that leaves rows with a gradient of zero alone. Robust
        means look at all numbers, so they need the whole vector.
        """
        scheme = self.make_scheme()
        to_servers = scheme.server(servers) is not None and not scheme.uses_mean(servers)
        return to_servers and not scheme.trains_locally and self.robust.rule == NONE and bool(self.make_rule().by_rows)

    def to_json(self) -> str:
        """Returns the recipe as JSON with its keys in a fixed order, so that equal recipes give equal texts."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """Returns the recipe of a text by `to_json`. Raises msgspec.DecodeError for any other text."""
        return msgspec.json.decode(text, type=cls)

    def digest(self) -> str:
        """Returns 16 hexadecimal digits of the SHA-256 of the recipe, by which workers are compared.

        `begun` may differ: the others take over what worker 0 has loaded. So may `moment`, of a worker that comes late.
        """
        return hashlib.sha256(replace(self, begun=False, moment=0).to_json().encode()).hexdigest()[:16]


def coordinator_role(plan: Plan, place: RoleContext) -> Role:
    """Returns the coordinator's role of the planned scheme, or a plain Role, which sends nothing."""
    recipe = Recipe.from_json(plan.optimizer)
    scheme = recipe.make_scheme()
    return (scheme.Coordinator if scheme.Coordinator and not recipe.store else Role)(scheme, place)


def check_batch_limits(plan: Plan) -> None:
    """Raises ConfigError where the planned scheme cannot keep to the largest batches of the workers."""
    if plan.batch_limits:
        Recipe.from_json(plan.optimizer).make_scheme().check_batch_limits(plan.batch_limits)
