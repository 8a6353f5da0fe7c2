"""Simulated processes, their incarnations, and the calls they wait for.

    SimulatedProcess   one role on one machine; a rejoin or a replaced server makes another one
    Incarnation        one running generator of a worker; a restart makes another one on the same process
    PendingCall        one Call or Mean of an incarnation, until its last answer has arrived
    PeerMeanCall       one Mean that the workers carry themselves

The state of a call: `missing` counts the shards that have not answered; `done` is set with `value`, or with `error`.
A call that is done stays so, and later answers change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from random import Random
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.effects import Effect, Reply, Tell, Ticket
from paceline.core.parties.server_view import loop_anew
from paceline.core.role import Role
from paceline.sim.cluster.network import Nic
from paceline.sim.cluster.step_times import Speed

On = Callable[[float, int, Any], Iterable[Tell | Reply]]
"""What a role does with a message: takes the party's clock in seconds, the sender's rank or shard, and the message."""


class SimulatedProcess:
    """Holds one role with its network card, its clock, and the calls it has not answered yet.

    skew_s          what this party's clock shows at virtual time 0, in seconds
    here            it takes part, as far as the membership knows
    hears           its process lives; an evicted worker may still hear, a crashed one does not
    speed           of a worker's device; None if the workload's seconds hold as they are
    sent, received  bytes of vectors
    incarnation     of its process, from 0; the two roles of a server share one `process`
    """

    __slots__ = (
        "hears",
        "here",
        "incarnation",
        "kind",
        "me",
        "name",
        "nic",
        "on",
        "open",
        "process",
        "received",
        "role",
        "sent",
        "skew_s",
        "speed",
        "told_at",
        "who",
    )

    def __init__(
        self, name: str, role: Role, nic: Nic, skew_s: float, speed: Speed | None = None, incarnation: int = 0
    ) -> None:
        self.name, self.incarnation = name, incarnation
        self.process = name, incarnation
        self.role = role
        self.me = role.me
        self.kind = name.partition(" ")[0]  # `worker`, `server`, ...
        self.who = Party(self.kind, self.me)
        self.on: On = role.on
        self.nic = nic
        self.skew_s = skew_s
        self.speed = speed
        self.here = self.hears = True
        self.sent = self.received = 0
        self.told_at = 0.0  # when the last news of who takes part reaches it
        self.open: dict[int, list[PendingCall]] = {}  # by caller, oldest first; with hazards `IncomingCalls` has them

    def admit(self, call: PendingCall) -> None:
        """Opens a call where no message is lost, so that each comes once and in order.

        It drops those of an earlier incarnation of the caller, which nobody waits for any more. A call left over from
        before a restart would take the reply of the next one.
        """
        rank = call.incarnation.rank
        calls = self.open.get(rank)
        if calls is None or (calls and calls[0].incarnation is not call.incarnation):
            self.open[rank] = [call]
        else:
            calls.append(call)


class Incarnation:
    """One incarnation of a worker: its running generator, until it ends, leaves or is restarted.

    `fresh`: it came late, and its local optimizer has no memory yet. `ends`: it makes its last exchange.
    `exchanges`: 1 if there was an exchange since its last piece of work. `cpu_s`: core seconds of
    that, where cores are shared.
    """

    __slots__ = (
        "alive",
        "awaited",
        "blocked_at",
        "cpu_s",
        "ends",
        "exchanges",
        "fresh",
        "generator",
        "number",
        "party",
        "rank",
        "rng",
    )

    def __init__(
        self, party: SimulatedProcess, number: int, generator: Generator[Effect, Any, None], rng: Random
    ) -> None:
        self.rank = party.me
        self.number = number
        self.party = party
        self.generator = generator
        self.rng = rng
        self.alive = True
        self.fresh = self.ends = False
        self.exchanges = 0
        self.awaited: PendingCall | None = None
        self.blocked_at = self.cpu_s = 0.0

    @property
    def nic(self) -> Nic:
        return self.party.nic

    def start_anew(self) -> None:
        """Makes the loop start from the beginning when it is resumed next, since servers went back."""
        self.generator.close()
        self.generator, self.ends = loop_anew(self.party.role, lambda: None), False

    def begin_last_exchange(self, *, soon: bool) -> None:
        """Puts the role's last exchange in place of its loop, which is at local work."""
        assert not self.ends, f"{type(self.party.role).__qualname__}.last_exchange asks for local work"
        self.generator.close()
        self.generator, self.ends = self.party.role.last_exchange(soon=soon), True

    def end(self) -> None:
        """Ends the incarnation: its generator is closed, and whatever arrives for it later is ignored."""
        self.alive = False
        self.generator.close()


class PendingCall(Ticket):
    """A Call or Mean under way: the answers that came, one of each shard.

    sending_s, receiving_s  how long question and answer were on their way, the slowest of each
    numbers                 where each part is open among the calls of its process, by the number of whom it asks; None
                            where no message is lost, so that nobody needs to know
    """

    # One is made for every message, so it has no table of its own.
    __slots__ = ("done", "error", "incarnation", "missing", "numbers", "parts", "receiving_s", "sending_s", "value")

    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.parts: list[Any] | None = None
        self.missing = 1
        self.done = False
        self.sending_s = self.receiving_s = 0.0
        self.value: Any = None
        self.error: Exception | None = None
        self.numbers: dict[int, Any] | None = None

    @property
    def nic(self) -> Nic:
        return self.incarnation.party.nic


class PeerMeanCall(PendingCall):
    """A Mean under way that the workers `among` carry themselves.

    `nbytes`: what this worker hands in; `gathered`: everybody receives the parts of all, not their sum.
    """

    __slots__ = ("among", "gathered", "nbytes")

    def __init__(self, incarnation: Incarnation, among: tuple[int, ...]) -> None:
        super().__init__(incarnation)
        self.among = among
        self.nbytes, self.gathered = 0, False
