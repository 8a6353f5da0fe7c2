"""What all workers of a run have to agree on; worker 0's goes to everybody, by names and numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paceline.codec.pipeline.policy import Codecs
from paceline.core.paramserver.gradient_check import GradientCheckPolicy
from paceline.core.paramserver.robust_mean import NONE, RobustPolicy
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Scheme, make
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.live.protocol.control_messages import Plan
from paceline.runtime.kvstore.store_spec import StoreSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """store: what is kept on the servers is no model, but keys and values."""

    scheme: str
    parameters: dict[str, Any] = field(default_factory=dict)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    seed: int = 0
    codecs: Codecs = field(default_factory=Codecs)
    gate: GradientCheckPolicy = field(default_factory=GradientCheckPolicy)
    robust: RobustPolicy = field(default_factory=RobustPolicy)
    store: StoreSpec | None = None

    def make_scheme(self) -> Scheme:
        """Raises ConfigError for an unknown scheme or a bad parameter."""
        return make(self.scheme, self.parameters)

    def make_rule(self, tensors: Sequence[int] = ()) -> Any:
        """What turns a gradient into new weights; without momentum where the scheme has one of its own.

        `tensors`: lengths of those that the weights are made of, for rules that need whole ones.

        Raises ConfigError for a bad optimizer or schedule.
        """
        from paceline.engine.optim.optimizers import make_rule  # here, as the supervisor has no use for torch

        return make_rule(self.of_rule(self.optimizer), self.schedule, tensors)

    def of_rule(self, optimizer: OptimizerRecipe) -> OptimizerRecipe:
        """`optimizer`, without momentum where the scheme has one of its own."""
        own = self.make_scheme().own_momentum and optimizer.name == "sgd"
        return optimizer.without_momentum() if own else optimizer

    def by_rows(self, servers: int) -> bool:
        """May gradients of sparse embeddings travel as rows, so that nobody can tell the difference?

        They do where servers apply gradients, by a rule that leaves rows alone whose gradient is zero; robust means
        look at all numbers.
        """
        scheme = self.make_scheme()
        to_servers = scheme.server(servers) is not None and not scheme.uses_mean(servers)
        return to_servers and not scheme.trains_locally and self.robust.rule == NONE and bool(self.make_rule().by_rows)

    def to_json(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        return msgspec.json.decode(text, type=cls)

    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def coordinator_role(plan: Plan, place: RoleContext) -> Role:
    """The coordinator's box of the planned scheme, or one with nothing to say."""
    recipe = Recipe.from_json(plan.optimizer)
    scheme = recipe.make_scheme()
    return (scheme.Coordinator if scheme.Coordinator and not recipe.store else Role)(scheme, place)
