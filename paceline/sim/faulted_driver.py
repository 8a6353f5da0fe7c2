"""What the parts that carry out faults may ask the one who drives them: `Simulation`, seen from below."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from paceline.core.coordination.party import Party
from paceline.sim.checking.oracles.end_of_run import StopWish
from paceline.sim.driver_protocol import DriverMembers
from paceline.sim.kernel.processes import Incarnation, SimulatedProcess
from paceline.sim.kernel.workload import SimulatedLeaseSource
from paceline.sim.messaging import Messaging, MessagingDriver


class FaultedMembers(DriverMembers, Protocol):
    """Says who takes part, and hears what becomes of the parties."""

    def absent_at_first(self, rank: int) -> None: ...
    def silent(self, names: Iterable[str], for_s: float) -> None: ...
    def connection_lost(self, who: Party) -> None: ...


class FaultedDriver(MessagingDriver, Protocol):
    """Shows a simulation to whoever lets its workers come and go.

    `lender`: leases samples, or None. `wish`: what ends the run, or None.
    """

    @property
    def messaging(self) -> Messaging: ...
    @property
    def members(self) -> FaultedMembers: ...
    @property
    def lender(self) -> SimulatedLeaseSource | None: ...
    @property
    def wish(self) -> StopWish | None: ...
    def begin(self, party: SimulatedProcess, incarnation: int, at: float = 0.0) -> Incarnation: ...
    def join(self, rank: int) -> None: ...
    def leave(self, rank: int) -> None: ...
    def crash(self, rank: int) -> None: ...
    def restart(self, rank: int) -> None: ...
