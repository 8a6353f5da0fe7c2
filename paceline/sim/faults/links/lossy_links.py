"""Reliable streams between processes, over links that lose, repeat, delay and reorder messages.

What a party sends is numbered and sent again until it is acknowledged (`reliable_delivery.py`), so the
roles see each message once and in order, as over TCP.

    event                              then
    a message is sent                  numbered, put on the link; a timer looks for its acknowledgement
    it arrives, the next number        given to the role, acknowledged
    it arrives again                   acknowledged again
    it arrives too early               dropped; it will be sent again
    no acknowledgement                 up to IN_FLIGHT_MAX are sent again, with growing pauses up to PATIENCE_MAX_S
    its sender was declared lost       rejected, and the sender is told
    a process crashes                  its role, what it took and what it sent survive as one; messages under way do not
    a server's disk is full            it takes nothing until there is room
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from paceline.core.message import size
from paceline.core.parties.server_view import is_undone
from paceline.sim.faults.links.reliable_delivery import DeliveryVerdict, Receiver, Sender
from paceline.sim.kernel.event_queue import Event
from paceline.sim.kernel.processes import SimulatedProcess

if TYPE_CHECKING:
    from paceline.sim.cluster.model import Hazards
    from paceline.sim.faulted_driver import FaultedDriver
    from paceline.sim.faults.parties.open_calls import SimulatedCalls
    from paceline.sim.messaging import WireCodec

Act = Callable[..., None]
Item = tuple[int, Act, tuple[Any, ...], int]
"""Bytes of the vectors, the action on arrival with its arguments, and the server view it was sent in."""

IN_FLIGHT_MAX = 16
"""Messages that are sent again at once after a silence."""
PATIENCE_MAX_S = 1.0
"""The longest pause between two attempts, however often the earlier ones failed."""


class Channel:
    """Holds one direction between two processes.

    waiting  a timer will look for acknowledgements
    said     number of the last message that is for a role, or for the coordinator
    """

    __slots__ = ("dst", "over", "patience_s", "said", "sender", "src", "waiting")

    def __init__(self, src: SimulatedProcess, dst: SimulatedProcess) -> None:
        self.src, self.dst = src, dst
        self.sender = Sender()
        self.waiting = self.over = False
        self.patience_s, self.said = 0.0, 0

    def __str__(self) -> str:
        return f"{self.src.name}'s way to {self.dst.name}"


class LossyLinks:
    """Connects all processes of `sim` by links with `hazards`, until `calm`. `injected`: counts of injected faults.

    calls     opens the calls of roles, and says which process a message reaches
    fenced    called with a process whose messages were rejected, since it was declared lost
    in_vain   called with a message to a process that is known to be lost
    """

    def __init__(
        self,
        sim: FaultedDriver,
        hazards: Hazards,
        passage: WireCodec | None,
        calls: SimulatedCalls,
        fenced: Callable[[SimulatedProcess], None],
        in_vain: Callable[[SimulatedProcess, Act, tuple[Any, ...]], None],
    ) -> None:
        self._sim, self._hazards, self._passage, self._calls = sim, hazards, passage, calls
        self._refused, self._in_vain = fenced, in_vain
        self._rng = Random(f"{sim.seed}/hazards")
        self._stormy = True
        network = sim.cluster.network
        self._patience_s = 0.05 + 4 * network.latency_s + hazards.late_s
        self._ways: dict[tuple[Any, Any], Channel] = {}
        self._receivers: dict[tuple[str, int], Receiver] = {}
        self._exited: set[tuple[str, int]] = set()  # processes
        self._dead: set[tuple[str, int]] = set()  # processes of workers that have died as they left
        self._cuts: list[tuple[str, frozenset[str], float]] = []
        self._full: dict[str, float] = {}  # until when a party's disk is
        self._doomed: dict[str, tuple[bool, float]] = {}  # dies with the next message: after it, and for how long
        self._muted: SimulatedProcess | None = (
            None  # dies when it has handled this message; what it says is not sent any more
        )
        self.injected: Counter[str] = Counter()
        self.server_views: dict[tuple[str, int], int] = {}  # of processes that know another one than the first
        self.holds: Callable[[SimulatedProcess, Act, tuple[Any, ...]], bool] = lambda dst, act, args: (
            False
        )  # keeps a message that has arrived, for a role that does not exist yet
        self.over: Callable[[], bool] = lambda: False  # returns True once everybody was told that the run is over
        self.loses: Callable[[SimulatedProcess], bool] = lambda party: (
            False
        )  # dies with all that it holds, if it is such a party
        self.has_left: Callable[[SimulatedProcess], bool] = lambda party: (
            False
        )  # returns True for a worker of which the coordinator knows that it has left
        # Called with sender and receiver of each message of a role.
        self.posted: Callable[[SimulatedProcess, SimulatedProcess], object] = lambda src, dst: None

    # ---- sending -------------------------------------------------------------------------------------------
    def post(
        self, src: SimulatedProcess, dst: SimulatedProcess, message: Any, act: Act, args: tuple[Any, ...]
    ) -> float:
        """Sends a message, after the codec if there is one; takes the place of `Messaging`'s direct delivery."""
        if self._passage is None:
            nbytes = size(message)
        else:
            arriving, nbytes = self._passage(src, dst, message)
            args = tuple([arriving if arg is message else arg for arg in args])
        src.sent += nbytes
        dst.received += nbytes
        self.posted(src, dst)
        if (there := self._calls.connection(src, dst)) is not dst:
            dst, args = there, (there, *args[1:])
        if act is self._sim.messaging.asked and not self._calls.opens(src, dst, args[1], args[2]):
            return self._sim.now
        return self.send(src, dst, nbytes, act, args)

    def send(
        self,
        src: SimulatedProcess,
        dst: SimulatedProcess,
        nbytes: int,
        act: Act,
        args: tuple[Any, ...],
        *,
        past_role: bool = False,
    ) -> float:
        """Makes `act(*args)` happen at `dst` exactly once. Returns the virtual time at which it arrives if nothing goes
        wrong.

        `nbytes`: bytes of vectors, which take time on the network. If `src` has fenced `dst`, nothing is sent, and
        `in_vain` is called; also for a call to a worker that has died as it left (`died`). Nor is anything sent to a
        process that has exited; a call to it fails when `src` is told of its loss. `past_role`: no role hears it, and
        nobody has to wait until it is taken.
        """
        asks = act is self._sim.messaging.asked
        if self.receiver(src).peers.is_over(dst.name, dst.incarnation) or (asks and dst.process in self._dead):
            self._in_vain(dst, act, args)
            return self._sim.now
        if dst.process in self._exited:
            return self._sim.now
        way = self._ways.get((src.process, dst.process))
        if way is None:
            way = self._ways[src.process, dst.process] = Channel(src, dst)
        item = (nbytes, act, args, self.server_views.get(src.process, 0))
        number = way.sender.put(item)
        if asks:
            self._calls.is_sent(args[1], dst, number)
        if not past_role:
            way.said = number
        at = self._transmit(way, number, item)
        self._watch(way)
        return at

    def _transmit(self, way: Channel, number: int, item: Item) -> float:
        """Puts a numbered message on the link, for the first time or again. Returns when it would arrive."""
        return self._carry(way.src, way.dst, item[0], self._arrives, way.dst, way, number, item)

    def _carry(self, src: SimulatedProcess, dst: SimulatedProcess, nbytes: int, act: Act, *args: Any) -> float:
        """Sends something once over the network with its hazards: lost, late, repeated, or cut off.

        Acknowledgements and rejections travel here too, without a number: when one gets lost, the next one replaces
        it.
        """
        sim, hazards, draw = self._sim, self._hazards, self._rng.random
        at = sim.network.arrival(sim.now, src.nic, dst.nic, nbytes)
        if self._muted is not None and src.name == self._muted.name:
            return at
        if self._cuts and self._is_cut(src, dst):
            self.injected["cut off"] += 1
            return at
        arrives = at
        if self._stormy:
            if draw() < hazards.lost:
                self.injected["lost"] += 1
                return at
            if draw() < hazards.late:
                self.injected["late"] += 1
                arrives += draw() * hazards.late_s
            if draw() < hazards.repeated:
                self.injected["repeated"] += 1
                sim.heap.push(arrives + draw() * hazards.late_s, act, *args)
        sim.heap.push(arrives, act, *args)
        return at

    def _watch(self, way: Channel) -> None:
        """Starts the timer of a channel, unless it runs."""
        if not way.waiting:
            way.waiting = True
            way.patience_s = self._patience_s
            self._sim.heap.push(self._sim.now + way.patience_s, self._again, way.src, way)

    def _again(self, src: SimulatedProcess, way: Channel) -> None:
        """Sends the oldest unacknowledged messages again, and doubles the pause until the next attempt.

        The timer ends when nothing is unacknowledged, when the sender is dead, or when the channel is over. If the
        receiver is dead it ends when the run is over, where nobody looks for the silent any more, or for a worker that
        leaves or has left, which is not told of losses: a live one notices that the connection is gone. Nor is anybody
        told that a worker has died which had left (`died`).
        """
        unheard = src.kind == way.dst.kind == "worker" and not src.here
        in_vain = not way.dst.hears and (unheard or self.has_left(way.dst) or self.over())
        way.waiting = src.hears and not way.over and len(way.sender) > 0 and not in_vain
        if not way.waiting:
            if in_vain and unheard:  # nor does it wait for an answer to that, before it says that it has left
                self.give_up(src, way.dst)
            return
        for number, item in list(way.sender.unacknowledged())[:IN_FLIGHT_MAX]:
            self._transmit(way, number, item)
        way.patience_s = min(2 * way.patience_s, max(PATIENCE_MAX_S, self._patience_s))
        self._sim.heap.push(self._sim.now + way.patience_s, self._again, src, way)

    # ---- receiving -----------------------------------------------------------------------------------------
    def receiver(self, party: SimulatedProcess) -> Receiver:
        """Returns the table of what the process of `party` has taken and fenced."""
        return self._receivers.setdefault(party.process, Receiver())

    def _arrives(self, dst: SimulatedProcess, way: Channel, number: int, item: Item) -> None:
        """Handles the arrival of a message: a dead process or one with a full disk drops it, and it will come again."""
        if not dst.hears or self._is_full(dst):
            return
        survives, away_s = self._doomed.pop(dst.name, (None, 0.0))
        if survives is False:  # what it had begun to write is torn, and counts as never begun
            self.crash(dst, away_s)
            return
        self._take(dst, way, number, item, survives is True)
        if survives:
            self.crash(dst, away_s)

    def _take(self, dst: SimulatedProcess, way: Channel, number: int, item: Item, muted: bool) -> None:
        """Admits a message, gives it to the role if it is the next one, and acknowledges it.

        `muted`: the process dies with this message. Its effect is durable, but neither its responses nor its
        acknowledgement are sent.
        """
        src, receiver, invariants = way.src, self.receiver(dst), self._sim.invariants
        verdict = receiver.admit(src.name, src.incarnation, number)
        if muted:
            self._muted = dst
        if verdict is DeliveryVerdict.STALE:
            self._carry(dst, src, 0, self._refused, src)
        else:
            if verdict is DeliveryVerdict.NEW:
                if invariants:
                    invariants.deliveries.delivered(src, dst, number)
                if self._is_heard(src, dst, item) and not self.holds(dst, item[1], item[2]):
                    item[1](*item[2])
            self._carry(dst, src, 0, self._acknowledged, src, way, receiver.last(src.name, src.incarnation))
        self._muted = None

    def _is_heard(self, src: SimulatedProcess, dst: SimulatedProcess, item: Item) -> bool:
        """Returns False for a message of a role that belongs to another server view than that of `dst`.

        Copies between servers are such messages, too. The message is acknowledged all the same, or it would be sent for
        ever.
        """
        messaging, servers = self._sim.messaging, self._sim.members.servers
        between_boxes = item[1] in (messaging.asked, messaging.answered, messaging.heard)
        between_boxes = between_boxes or (servers is not None and item[1] == servers.hears_copy)
        if not self.server_views or not between_boxes:
            return True
        return not is_undone(item[3], self.server_views.get(dst.process, 0), src.who, dst.who)

    def _acknowledged(self, src: SimulatedProcess, way: Channel, last: int) -> None:
        """Forgets messages up to number `last` at their sender. Progress resets the pause between attempts."""
        if not src.hears:
            return
        if self._sim.invariants:
            self._sim.invariants.deliveries.acknowledged(src, way.dst, last)
        before = len(way.sender)
        way.sender.acknowledged(last)
        if len(way.sender) < before:
            way.patience_s = self._patience_s

    # ---- what goes wrong -----------------------------------------------------------------------------------
    def crash(self, party: SimulatedProcess, away_s: float) -> None:
        """Crashes a process for `away_s` seconds; it comes back as it was after its last message.

        A server that can be lost with its state (`loses`) does not come back: it is replaced.
        """
        if self.loses(party):
            return
        self._alive(party, False)
        self.injected["crash"] += 1
        self._sim.heap.push(self._sim.now + away_s, self._back, party)

    def crash_with_next(self, party: SimulatedProcess, away_s: float, *, after: bool) -> None:
        """Makes `party` die while it handles its next message. `after`: the effect is saved before it dies, but nothing
        is sent."""
        self._doomed[party.name] = after, away_s

    def _back(self, party: SimulatedProcess) -> None:
        """Revives a process, and restarts the timers of what it had not delivered."""
        self._alive(party, True)
        for way in self._ways.values():
            if way.src.name == party.name:
                self._watch(way)

    def _alive(self, party: SimulatedProcess, alive: bool) -> None:
        """Sets whether a process hears. A server's two roles, and so all parties of its name, live and die together."""
        for other in self._sim.world.others:
            if other.name == party.name:
                other.hears = alive

    def fill_disk(self, party: SimulatedProcess, for_s: float) -> None:
        """Lets `party` take nothing for `for_s` seconds."""
        self._full[party.name] = self._sim.now + for_s

    def _is_full(self, party: SimulatedProcess) -> bool:
        """Returns True while the disk of `party` is full, and counts the message that is dropped for that."""
        if self._full.get(party.name, 0.0) <= self._sim.now:
            return False
        self.injected["disk full"] += 1
        return True

    def cut(self, names: frozenset[str], *, hears: bool, for_s: float) -> None:
        """Lets nothing that the parties `names` send reach anybody for `for_s` seconds; or, with `hears`, nothing reach
        them."""
        self._cuts.append(("to" if hears else "from", names, self._sim.now + for_s))

    def _is_cut(self, src: SimulatedProcess, dst: SimulatedProcess) -> bool:
        """Returns True if a cut lies between the two; cuts that are over are forgotten."""
        now = self._sim.now
        self._cuts = [cut for cut in self._cuts if cut[2] > now]
        return any((dst if way == "to" else src).name in names for way, names, _ in self._cuts)

    def reset(self, names: frozenset[str]) -> None:
        """Breaks every connection of these parties: what is on its way on them is lost, and sent again later."""

        def on_its_way(event: Event) -> float | None:
            at, _, act, args = event
            if getattr(act, "__self__", None) is not self or act == self._again or act == self._back:
                return at
            ends = (args[1].src.name, args[1].dst.name) if len(args) > 1 else (args[0].name,)
            if names.isdisjoint(ends):
                return at
            self.injected["reset"] += 1
            return None

        self._sim.heap.change(on_its_way)

    def calm(self) -> None:
        """Stops all hazards: from now on nothing is lost, late or repeated. The fuzzer then checks liveness."""
        self._stormy = False
        self._cuts.clear()
        self._full.clear()
        self._doomed.clear()

    # ---- coming and going ----------------------------------------------------------------------------------
    def fence(self, party: SimulatedProcess, dead: SimulatedProcess) -> None:
        """Lets `party` reject everything of that incarnation of `dead` from now on."""
        self.receiver(party).peers.end(dead.name, dead.incarnation)
        self.give_up(party, dead)

    def give_up(self, party: SimulatedProcess, dead: SimulatedProcess) -> None:
        """Ends the attempts of `party` to reach that incarnation of `dead`."""
        way = self._ways.pop((party.process, dead.process), None)
        if way:
            way.over = True

    def forget(self, party: SimulatedProcess) -> None:
        """Forgets a process that is gone for good, and everything it sent that was not acknowledged."""
        self._receivers.pop(party.process, None)
        self._calls.forget(party)
        for key in [key for key in self._ways if key[0] == party.process]:
            self._ways.pop(key).over = True

    def closed(self, party: SimulatedProcess) -> None:
        """Ends a process that has exited: nobody tries to reach it any more."""
        self._exited.add(party.process)
        self.forget(party)
        for key in [key for key in self._ways if key[1] == party.process]:
            self._ways.pop(key).over = True

    def died(self, dead: SimulatedProcess) -> None:
        """Fails the calls to a worker that has died as it left, now and, in `send`, later.

        Nobody is told that it died if it had said before that it has left, and it may have acknowledged a call that it
        never answered. A live caller sees its connection close.
        """
        self._dead.add(dead.process)
        for way in [way for (_, dst), way in self._ways.items() if dst == dead.process and way.src.hears]:
            self._calls.worker_ended(way.src, dead)

    def quiet(self, party: SimulatedProcess) -> bool:
        """Returns True if nothing is unacknowledged to or from that process, other than by those that never will."""
        its_own = (way for key, way in self._ways.items() if party.process in key)
        return not any(way.sender and self._acknowledges(way.src, way.dst) for way in its_own)

    def _acknowledges(self, src: SimulatedProcess, dst: SimulatedProcess) -> bool:
        """Returns False where `dst` refuses `src`, or is a dead worker or a dead server with a successor."""
        if self.receiver(dst).peers.is_over(src.name, src.incarnation):
            return False
        if dst.hears or dst.kind not in ("worker", "server"):
            return True
        return dst.kind == "server" and self._sim.world.servers[dst.me] is dst

    def settled(self, party: SimulatedProcess, kinds: Sequence[str]) -> bool:
        """Returns True if the processes of these kinds have acknowledged all that `party` has sent to them."""
        return not any(
            way.sender for (src, _), way in self._ways.items() if src == party.process and way.dst.kind in kinds
        )

    def sent_by(self, src: SimulatedProcess) -> Iterator[tuple[SimulatedProcess, int]]:
        """Yields, for each process that `src` has not given up, the number of the last message that it must take.

        What a server has not taken of an earlier server view is void.
        """
        return ((way.dst, self._last_valid(src, way)) for (a, _), way in self._ways.items() if a == src.process)

    def last_sent(self, src: SimulatedProcess, dst: SimulatedProcess) -> int:
        """Returns the number of the last message of any kind from `src` to `dst`; 0 if there is none."""
        way = self._ways.get((src.process, dst.process))
        return way.sender.sent if way else 0

    def sent_to(self, dst: SimulatedProcess) -> Iterator[tuple[SimulatedProcess, int]]:
        """Yields, for each process that has not given up `dst`, the number of the last message for a role there."""
        return ((way.src, way.said) for (_, b), way in self._ways.items() if b == dst.process)

    def _last_valid(self, src: SimulatedProcess, way: Channel) -> int:
        view = self.server_views.get(src.process, 0)
        if way.dst.kind != "server" or not view:
            return way.said
        valid = [number for number, item in way.sender.unacknowledged() if number <= way.said and item[3] == view]
        return max(valid, default=min(way.said, way.sender.taken))

    def has_lost(self, src: SimulatedProcess, dst: SimulatedProcess) -> bool:
        """Returns True if `src` has no connection to `dst`: it ended that, or `dst` is a worker that is dead."""
        if dst.process in self._exited or self.receiver(src).peers.is_over(dst.name, dst.incarnation):
            return True
        return dst.kind == "worker" and not dst.hears

    def unheard(self, src: SimulatedProcess, dst: SimulatedProcess) -> Iterator[tuple[Any, ...]]:
        """Yields the arguments of every message from `src` that `dst` has not acknowledged."""
        if way := self._ways.get((src.process, dst.process)):
            for _, (_, _, args, _) in way.sender.unacknowledged():
                yield args

    def under_way(self) -> Iterator[tuple[Act, tuple[Any, ...]]]:
        """Yields the action and arguments of every message that has not arrived and still may."""
        for way in self._ways.values():
            receiver, src = self.receiver(way.dst), way.src
            if receiver.peers.is_over(src.name, src.incarnation):
                continue
            last = receiver.last(src.name, src.incarnation)
            for number, (_, act, args, _) in way.sender.unacknowledged():
                if number > last:
                    yield act, args

    def most_kept(self) -> tuple[int, str]:
        """Returns the most unacknowledged messages on any channel, and that channel's name."""
        longest = max(self._ways.values(), key=lambda way: len(way.sender), default=None)
        return (len(longest.sender), str(longest)) if longest else (0, "")

    def most_known(self) -> int:
        """Returns the most senders about which any process keeps something."""
        return max(map(len, self._receivers.values()), default=0)
