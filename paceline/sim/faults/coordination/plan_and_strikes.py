"""What the coordinator's machine needs to have in a simulation: who makes the plan, and who counts strikes.

A live run plans by measured speeds and links (`live/coordinator/planner.py`). Here the cluster is given, so a plan says
who takes part, how the servers divide the model, and what bounds claims. False claims that the coordinator finds are
counted at the coordinator (`sim/message_checks.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party
from paceline.core.coordinator.bring_up import PlanRequest
from paceline.core.role import Role

if TYPE_CHECKING:
    from paceline.sim.faulted_driver import FaultedDriver


class SimulatedStrikes:
    """Counts the false claims that the coordinator finds: each is a strike, which no honest worker may have."""

    def __init__(self, sim: FaultedDriver) -> None:
        self._sim = sim

    def strike(self, who: Party, why: str, *, at_once: bool = False) -> None:
        """Counts a claim of `who`, such as samples that are not its own."""
        checks = self._sim.message_checks
        assert checks is not None, why
        checks.strike(checks.coordinator, who, why, at_once=at_once)

    def refused(self, who: Party) -> bool:
        """Returns True if any claim of `who` was false."""
        checks = self._sim.message_checks
        return checks is not None and checks.coordinator.admission.refused(who)


class SimulatedPlanner:
    """Makes the plan of a run that survives every loss of a worker, whoever carries its means."""

    def __init__(self, sim: FaultedDriver) -> None:
        self._sim = sim

    def plan(self, request: PlanRequest) -> control.Plan:
        return replace(self._sim.plan, replaced=request.replaced, copied=request.copied)

    def role(self, plan: control.Plan) -> Role:
        """Returns the coordinator's role, which exists from the beginning of a simulation."""
        party = self._sim.world.coordinator
        return party.role if party else Role(self._sim.scheme, self._sim.world.workers[0].role.place)
