"""Lets steps and messages wait for the cores of their host, and messages for the process that takes them in.

It takes part where a host has `cores` or the cluster has `messages`; without them the driver goes other ways and no
run changes.

    step      at each mini-batch: a task of `cpu_s` core seconds, and the seconds of the device's model, side by
              side; the mini-batch is over when both are. So an emulated step, or one that waits for a GPU, uses its
              core only while it computes
    message   a task of the process that sends it, then the way (`Network`), then a task of the process that takes it
              in, whose role hears of it after that
    vectors   what the role of a worker computes between two effects is a task as long as its passes over memory take;
              a local optimizer makes one in each step, and the weights of local steps are copied when they end.
              A server's update is in the costs of its messages

The tasks of one process run one after the other, so messages queue at a server. Steps are not in that queue: a
worker's own thread computes while others of its threads take messages in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.core.effects import Computed, Trained
from paceline.core.message import measures, size
from paceline.sim.cluster.model import Device
from paceline.sim.cluster.network import Nic
from paceline.sim.driver_protocol import SimulationDriver
from paceline.sim.kernel.event_queue import Act
from paceline.sim.kernel.processes import Incarnation, SimulatedProcess
from paceline.sim.kernel.shared_cores import HostCores, TaskQueue

MB = 1e6
WireCodec = Callable[[SimulatedProcess, SimulatedProcess, Any], tuple[Any, int]]


@dataclass(slots=True)
class _StepUnderWay:
    """Holds the mini-batches of one piece of work. `open`: parts of the present one that are not over."""

    incarnation: Incarnation
    result: Computed | Trained
    steps: int
    left: int
    began: float
    open: int = 0
    cpu_s: float = 0.0


class CoreSharing:
    """Carries out steps and messages on the shared cores of a cluster's hosts."""

    def __init__(self, sim: SimulationDriver, passage: WireCodec | None, passed: Callable[[], int]) -> None:
        self._sim, self._passage, self._passed = sim, passage, passed
        self._passed_before = 0
        self.arithmetic_bytes = 0
        """Bytes of vectors that the roles of workers have computed."""
        cluster = sim.cluster
        self._costs, self._step_s = cluster.messages, cluster.step_s
        placements = cluster.worker_placements()
        self._devices: list[Device] = [placement.device for placement in placements if placement.device]
        self._cores: dict[Nic, HostCores] = {}
        self._queues: dict[str, TaskQueue] = {}
        self.used = {party.name: 0.0 for party in (*sim.world.workers, *sim.world.servers)}
        """Core seconds of each process, by its name."""
        for party, at in zip(sim.world.workers, placements, strict=True):
            self._cores.setdefault(party.nic, HostCores(sim.heap, at.host.cores))
        for party, at in zip(sim.world.servers, cluster.server_placements(), strict=True):
            self._cores.setdefault(party.nic, HostCores(sim.heap, at.host.cores))

    @classmethod
    def of(cls, sim: SimulationDriver, passage: WireCodec | None, passed: Callable[[], int]) -> CoreSharing | None:
        """Returns what shares the cores of the simulated cluster; None where nothing does.

        `passed` returns the bytes of vectors that arithmetic has written so far.
        """
        return cls(sim, passage, passed) if sim.cluster.shares_cores else None

    # ---- what roles of workers compute -------------------------------------------------------------------
    def begin_role(self) -> None:
        """Notes that the role of a worker goes on."""
        self._passed_before = self._passed()

    def computed(self, party: SimulatedProcess, then: tuple[Act, Any, Any, Any]) -> bool:
        """Lets a worker's process work for what its role has computed since it went on, and calls `then` after that;
        returns False, and calls nothing, if it has computed nothing."""
        nbytes = self._passed() - self._passed_before
        if nbytes == 0 or self._costs is None:
            return False
        act, a, b, c = then
        self.arithmetic_bytes += nbytes
        self._give(party, self._pass_s(nbytes), act, a, b, c)
        return True

    def _pass_s(self, nbytes: int) -> float:
        """Returns the core seconds of a pass over vectors of so many bytes."""
        return self._costs.pass_s_per_mb * nbytes / MB if self._costs is not None else 0.0

    # ---- steps -------------------------------------------------------------------------------------------
    def begin_work(self, incarnation: Incarnation, result: Computed | Trained, steps: int) -> None:
        """Begins `steps` mini-batches, after which `result` is handed to the worker with the seconds they took."""
        self._begin_step(_StepUnderWay(incarnation, result, steps, steps, self._sim.now), None, None)

    def _begin_step(self, work: _StepUnderWay, _: None, __: None) -> None:
        """Begins the next mini-batch."""
        incarnation, now = work.incarnation, self._sim.now
        device, reference_s = self._devices[incarnation.rank], work.result.seconds / work.steps
        speed = incarnation.party.speed
        least_s = speed.seconds(now, reference_s, 1) if speed else reference_s
        work.open = 1
        if device.cpu_s:
            work.open = 2
            core_s = device.cpu_s * reference_s / self._step_s
            if isinstance(work.result, Trained):
                core_s += self._pass_s(size(work.result))  # of the worker's own optimizer
            work.cpu_s += core_s
            self.used[incarnation.party.name] += core_s
            task = (core_s, device.threads, self._step_part_over, work, None, None)
            self._cores[incarnation.party.nic].begin(now, task)
        self._sim.heap.put(now + least_s, self._step_part_over, work, None, None)

    def _step_part_over(self, work: _StepUnderWay, _: None, __: None) -> None:
        """Begins the next mini-batch, or ends the work, once both parts of the present one are over."""
        work.open -= 1
        if work.open:
            return
        work.left -= 1
        if work.left and work.incarnation.alive:
            self._begin_step(work, None, None)
            return
        seconds, result = self._sim.now - work.began, work.result
        if isinstance(result, Computed):
            result = Computed(result.g, result.samples, seconds, result.data, result.unused)
        else:
            result = Trained(result.x, result.samples, seconds, result.memory, result.data)
        work.incarnation.cpu_s = work.cpu_s
        if isinstance(result, Trained) and self._costs is not None:
            copying_s = self._costs.worker_s_per_mb * size(result) / MB
            self._give(work.incarnation.party, copying_s, self._sim.worked, work.incarnation, result, work.steps)
        else:
            self._sim.worked(work.incarnation, result, work.steps)

    # ---- messages ----------------------------------------------------------------------------------------
    def post(
        self, src: SimulatedProcess, dst: SimulatedProcess, message: Any, act: Act, args: tuple[Any, Any, Any]
    ) -> float:
        """Sends a message; returns the virtual time at which it would be taken in if nothing had to wait."""
        if self._passage is None:
            nbytes = measures[type(message)](message)
        else:
            arriving, nbytes = self._passage(src, dst, message)
            a, b, c = (arriving if arg is message else arg for arg in args)
            args = a, b, c
        src.sent += nbytes
        dst.received += nbytes
        sending_s = self._seconds(src, nbytes)
        if src.nic in self._cores:
            self._give(src, sending_s, self._leave, src, dst, (nbytes, act, args))
        else:
            self._leave(src, dst, (nbytes, act, args))
        way_s = src.nic.latency_s + dst.nic.latency_s + nbytes * max(src.nic.seconds_per_byte, dst.nic.seconds_per_byte)
        return self._sim.now + sending_s + way_s + self._seconds(dst, nbytes)

    def _leave(self, src: SimulatedProcess, dst: SimulatedProcess, parcel: tuple[int, Act, Any]) -> None:
        """Puts a message on its way."""
        nbytes, act, args = parcel
        at = self._sim.network.arrival(self._sim.now, src.nic, dst.nic, nbytes)
        self._sim.heap.put(at, self._arrive, dst, self._seconds(dst, nbytes), (act, args))

    def _arrive(self, dst: SimulatedProcess, seconds: float, then: tuple[Act, Any]) -> None:
        """Lets the receiver take a message in, behind those that came before."""
        act, args = then
        if dst.nic in self._cores:
            self._give(dst, seconds, act, *args)
        else:
            act(*args)

    # ---- means that workers carry ------------------------------------------------------------------------
    def hand_in(self, party: SimulatedProcess, sent: int, then: tuple[Act, Any, Any, Any]) -> None:
        """Lets a worker send its part of a mean, `sent` bytes, to the other members; then calls `then`."""
        act, a, b, c = then
        self._give(party, self._seconds(party, sent), act, a, b, c)

    def hand_out(
        self, party: SimulatedProcess, added: int, copied: int, way_s: float, then: tuple[Act, Any, Any, Any]
    ) -> None:
        """Lets a worker add up and copy so many bytes, `way_s` seconds from now; then calls `then`."""
        act, a, b, c = then
        seconds = self._seconds(party, copied) + self._pass_s(added)
        self._sim.heap.put(self._sim.now + way_s, self._arrive, party, seconds, (act, (a, b, c)))

    def in_turn(self, party: SimulatedProcess, act: Act) -> None:
        """Calls `act` once the process has done what it was given before, such as to send its last messages."""
        if party.nic in self._cores:
            self._give(party, 0.0, act, None, None, None)
        else:
            act(None, None, None)

    def _seconds(self, party: SimulatedProcess, nbytes: int) -> float:
        """Returns the core seconds that a message costs a worker or a server."""
        costs = self._costs
        if costs is None:
            return 0.0
        if party.kind == "worker":
            return costs.worker_s + costs.worker_s_per_mb * nbytes / MB
        if party.kind == "server":
            return costs.server_s + costs.server_s_per_mb * nbytes / MB
        return 0.0

    def _give(self, party: SimulatedProcess, seconds: float, act: Act, a: Any, b: Any, c: Any) -> None:
        """Adds a task to the queue of a process; the two roles of a server share one."""
        queue = self._queues.get(party.name)
        if queue is None:
            queue = self._queues[party.name] = TaskQueue(self._cores[party.nic], lambda: self._sim.now)
        self.used[party.name] += seconds
        queue.add((seconds, 1, act, a, b, c))
