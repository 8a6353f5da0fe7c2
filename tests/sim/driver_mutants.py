"""Bugs planted one at a time, to see whether the invariants see them. Each is a patch of the product's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from paceline.core.collective.mean_server import MeanServer
from paceline.core.fault_tolerance.membership import Membership
from paceline.core.fault_tolerance.peer_incarnations import PeerIncarnations
from paceline.core.fault_tolerance.replication import Copies
from paceline.core.fault_tolerance.server_recovery import Replacing
from paceline.core.local.push_sum import Holder
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.round import Round
from paceline.core.scheme import lookup
from paceline.sim.faults.links.lossy_links import LossyLinks
from paceline.sim.faults.links.reliable_delivery import DeliveryVerdict, Receiver, Sender
from paceline.sim.faults.servers import recoverable_server
from paceline.sim.kernel.processes import SimulatedProcess

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]


def no_dedup(patch: Patch) -> None:
    admit = Receiver.admit

    def admits_all(self: Receiver, sender: str, incarnation: int, number: int) -> DeliveryVerdict:
        verdict = admit(self, sender, incarnation, number)
        return DeliveryVerdict.NEW if verdict is DeliveryVerdict.REPEAT else verdict

    patch.setattr(Receiver, "admit", admits_all)


def gaps_are_taken(patch: Patch) -> None:
    admit = Receiver.admit

    def admits_gaps(self: Receiver, sender: str, incarnation: int, number: int) -> DeliveryVerdict:
        verdict = admit(self, sender, incarnation, number)
        if verdict is DeliveryVerdict.GAP:
            self.peers.meets(sender, incarnation)
            self._taken[sender] = number
            return DeliveryVerdict.NEW
        return verdict

    patch.setattr(Receiver, "admit", admits_gaps)


def dedup_is_forgotten_in_a_crash(patch: Patch) -> None:
    crash = LossyLinks.crash

    def forgets(self: LossyLinks, party: SimulatedProcess, away_s: float) -> None:
        self.receiver(party)._taken.clear()
        crash(self, party, away_s)

    patch.setattr(LossyLinks, "crash", forgets)


def no_fence(patch: Patch) -> None:
    patch.setattr(PeerIncarnations, "end", lambda self, peer, incarnation: False)


def the_fence_is_forgotten_in_a_crash(patch: Patch) -> None:
    crash = LossyLinks.crash

    def forgets(self: LossyLinks, party: SimulatedProcess, away_s: float) -> None:
        self.receiver(party).peers._over.clear()
        crash(self, party, away_s)

    patch.setattr(LossyLinks, "crash", forgets)


def a_retry_has_a_new_number(patch: Patch) -> None:
    def renumbered(self: Sender) -> Iterator[tuple[int, Any]]:
        kept = [contents for _, contents in self._kept]
        self._kept.clear()
        return iter([(self.put(contents), contents) for contents in kept])

    patch.setattr(Sender, "unacknowledged", renumbered)


def numbers_of_five_bits(patch: Patch) -> None:
    """ps-lite's had eight; runs are short here."""
    put = Sender.put

    def wraps(self: Sender, contents: Any) -> int:
        self._sent %= 31
        return put(self, contents)

    patch.setattr(Sender, "put", wraps)


def acknowledged_before_it_is_durable(patch: Patch) -> None:
    arrives = LossyLinks._arrives

    def hasty(self: LossyLinks, dst: SimulatedProcess, way: Any, number: int, item: Any) -> None:
        if dst.hears and dst.name in self._doomed:
            self._carry(dst, way.src, 0, self._acknowledged, way.src, way, number)
        arrives(self, dst, way, number, item)

    patch.setattr(LossyLinks, "_arrives", hasty)


def what_was_said_is_forgotten_in_a_crash(patch: Patch) -> None:
    crash = LossyLinks.crash

    def forgets(self: LossyLinks, party: SimulatedProcess, away_s: float) -> None:
        for way in self._ways.values():
            if way.src.name == party.name:
                way.sender._kept.clear()
        crash(self, party, away_s)

    patch.setattr(LossyLinks, "crash", forgets)


def a_newcomer_enters_before_everybody_knows(patch: Patch) -> None:
    ready = Membership.ready

    def at_once(self: Membership[Any], now: float, who: Any) -> Any:
        announced = ready(self, now, who)
        for member in self._announced.values():
            member.unaware.clear()
        return [*announced, *self._known_to_all(now)]

    patch.setattr(Membership, "ready", at_once)


def carriers_of_means_are_not_told_who_is_gone(patch: Patch) -> None:
    patch.setattr(MeanServer, "on_worker_left", lambda self, now, rank: iter(()))


def servers_are_not_told_who_is_gone(patch: Patch) -> None:
    patch.setattr(ClockedServer, "on_worker_left", lambda self, now, rank: iter(()))


def a_round_forgets_the_samples_of_one(patch: Patch) -> None:
    add = Round.add

    def forgetful(self: Round, rank: int, g: Any, samples: int) -> None:
        before = self.samples
        add(self, rank, g, samples)
        if before:
            self.samples = before

    patch.setattr(Round, "add", forgetful)


def a_mean_counts_a_repeat(patch: Patch) -> None:
    meeting = MeanServer._meeting

    def forgets_who_came(self: MeanServer, part: Any) -> Any:
        found = meeting(self, part)
        found.counted.clear()
        return found

    patch.setattr(MeanServer, "_meeting", forgets_who_came)


def the_bound_on_staleness_is_off_by_one(patch: Patch) -> None:
    server = lookup("ssp").Server
    patch.setattr(server, "may_go", lambda self, rank: self.clocks[rank] - self.clocks.low <= self.s + 1)


def a_share_is_put_away_twice(patch: Patch) -> None:
    put = Holder._put

    def twice(self: Holder, w: Any, weight: float, round: int) -> None:
        put(self, w, weight, round)
        put(self, w, weight, round)

    patch.setattr(Holder, "_put", twice)


def a_share_that_comes_back_is_lost(patch: Patch) -> None:
    patch.setattr(Holder, "_hand_over", lambda self: iter(()))


def answers_go_before_their_state_is_kept(patch: Patch) -> None:
    hold = Copies.hold

    def hasty(self: Copies, at: int, role: Any, effects: Any) -> list[Any]:
        now = list(effects)
        hold(self, at, role, ())
        return now

    patch.setattr(Copies, "hold", hasty)


def a_copy_does_not_know_newcomers(patch: Patch) -> None:
    patch.setattr(recoverable_server, "mark_of", lambda role: getattr(role, "version", 0))


def the_lost_shard_goes_back_alone(patch: Patch) -> None:
    patch.setattr(Replacing, "concerned", lambda self: sorted(self.away))


def clocks_are_in_no_snapshot(patch: Patch) -> None:
    def restore(self: ClockedServer, tables: dict[str, Any]) -> None:
        self.version = tables["version"]

    patch.setattr(ClockedServer, "load_state_dict", restore)
