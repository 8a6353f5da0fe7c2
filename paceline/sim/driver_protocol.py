"""What the parts of a simulation may ask the one who drives them: `Simulation`, seen from below.

`Simulation` imports all of its parts. Were they to name it in their annotations, no file of them could be read without
the others. So each part names one of these protocols, which import only what lies below:

    SimulationDriver    what is simulated, and how far it is; for checks
    MessagingDriver     (`messaging.py`) also who checks messages, and how a worker is resumed
    FaultedDriver       (`faulted_driver.py`) also who comes, goes and is told so
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from paceline.core.coordination import control_messages as control
from paceline.core.role import Role
from paceline.core.scheme import Scheme
from paceline.core.trace import Record
from paceline.sim.cluster.model import Cluster
from paceline.sim.cluster.network import Network
from paceline.sim.kernel.event_queue import Act, Heap
from paceline.sim.kernel.processes import Incarnation, PendingCall, SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.world import World


class DriverMembers(Protocol):
    """Says who takes part. `servers`: set if servers can be lost with their state; `calls`, `incoming`: if messages
    can."""

    @property
    def servers(self) -> Any: ...
    @property
    def calls(self) -> Any: ...
    @property
    def incoming(self) -> Any: ...
    def worker_of(self, src: SimulatedProcess, rank: int) -> SimulatedProcess: ...
    def asked_in_vain(self, party: SimulatedProcess, call: PendingCall) -> None: ...


class SimulationDriver(Protocol):
    """Shows a simulation to its parts.

    now, events       virtual seconds, and events carried out
    length            parameters of the model
    plan              what the coordinator has planned, or will plan
    incarnations      by rank, the present one of each worker
    steps             by rank, mini-batches that are done
    worked            the act that ends a step
    liars             ranks that have begun to lie
    bad_results       whose results are NaN; None where nobody's are. It lies above
    streams, leasing  links that lose messages, and leases of samples; None where there are none. They lie above
    sharing           cores that are shared; None where none are. It lies above
    """

    now: float
    events: int
    heap: Heap

    @property
    def seed(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def plan(self) -> control.Plan: ...
    @property
    def scheme(self) -> Scheme: ...
    @property
    def cluster(self) -> Cluster: ...
    @property
    def network(self) -> Network: ...
    @property
    def world(self) -> World: ...
    @property
    def incarnations(self) -> list[Incarnation]: ...
    @property
    def steps(self) -> Sequence[int]: ...
    @property
    def worked(self) -> Act: ...
    @property
    def trace(self) -> Callable[[Record], None] | None: ...
    @property
    def liars(self) -> set[int]: ...
    @property
    def bad_results(self) -> Any: ...
    @property
    def members(self) -> DriverMembers: ...
    @property
    def streams(self) -> Any: ...
    @property
    def leasing(self) -> Any: ...
    @property
    def sharing(self) -> Any: ...
    def server(self, shard: int) -> Role: ...
    def expel(self, rank: int, reason: str) -> None: ...
