"""Slips of one line planted in schemes and in what they are made of, one at a time; `mutants` has those of the drivers.

Each is a patch of the product's own code, as `tests.sim.all_mutants` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from paceline.core.adaptive import batch_sizes
from paceline.core.collective import mean_server
from paceline.core.effects import Data
from paceline.core.fault_tolerance.server_recovery import Replacing
from paceline.core.local.push_sum import Holder, Share
from paceline.core.paramserver.clocks import Clocks
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.round import Round
from paceline.core.samples.sample_leases import Leases
from paceline.core.scheme import lookup
from paceline.schemes import hybrid

Patch = pytest.MonkeyPatch


# ---- those that the fuzzer once missed ---------------------------------------------------------------------------
def a_mean_forgets_the_weight_of_a_member(patch: Patch) -> None:
    add = mean_server._Sum.add

    def forgetful(self: Any, rank: int, part: Any) -> None:
        before = self.weight
        add(self, rank, part)
        if len(self.ranks) == 2:
            self.weight = before

    patch.setattr(mean_server._Sum, "add", forgetful)


def the_bound_and_its_declaration_are_off_by_one(patch: Patch) -> None:
    scheme = lookup("ssp")
    patch.setattr(scheme.Server, "may_go", lambda self, rank: self.clocks[rank] - self.clocks.low <= self.s + 1)
    patch.setattr(scheme, "max_ahead", lambda self: self.staleness + 1)


def the_lease_of_a_lost_worker_is_not_returned(patch: Patch) -> None:
    patch.setattr(Leases, "fenced", lambda self, rank, incarnation, pending: None)


def what_workers_have_seen_is_not_restored(patch: Patch) -> None:
    restore = ClockedServer.load_state_dict

    def forgets(self: ClockedServer, tables: dict[str, Any]) -> None:
        seen = self.seen.copy()
        restore(self, tables)
        self.seen = seen

    patch.setattr(ClockedServer, "load_state_dict", forgets)


def an_update_is_made_of_one_contribution_too_few(patch: Patch) -> None:
    server = lookup("ksync").Server
    enough = server.enough

    def hasty(self: Any, group: Round) -> bool:
        group.count += 1
        try:
            return bool(enough(self, group)) and group.count > 1
        finally:
            group.count -= 1

    patch.setattr(server, "enough", hasty)


def a_share_for_one_who_has_left_is_not_sent_back(patch: Patch) -> None:
    on = Holder.on

    def keeps(self: Holder, now: float, src: int, message: Any) -> Iterator[Any]:
        return iter(()) if self.left and isinstance(message, Share) else on(self, now, src, message)

    patch.setattr(Holder, "on", keeps)


# ---- schemes -----------------------------------------------------------------------------------------------------
def dssp_grants_one_iteration_beyond_its_range(patch: Patch) -> None:
    server = lookup("dssp").Server
    ahead = server._ahead

    def extra(self: Any, p: int) -> int:
        patch.setattr(server, "_ahead", lambda self, rank: ahead(self, rank) - 1)
        try:
            return int(granted(self, p))
        finally:
            patch.setattr(server, "_ahead", ahead)

    granted = server._extra
    patch.setattr(server, "_extra", extra)


def who_waits_for_a_merge_is_answered_before_it(patch: Patch) -> None:
    server = lookup("decoupled").Server
    go_on = server.go_on

    def hasty(self: Any, now: float) -> Iterator[Any]:
        yield from go_on(self, now)
        waiting, self.waiting = self.waiting, {}
        yield from [self.answer(rank, m) for rank, m in waiting.items()]

    patch.setattr(server, "go_on", hasty)


def a_barrier_waits_for_one_who_has_left(patch: Patch) -> None:
    server = lookup("partial").Server

    def gone(self: Any, now: float, rank: int) -> Iterator[Any]:
        if rank in self.lap:
            self.lap.drop(rank)
        yield from ClockedServer.on_worker_left(self, now, rank)

    patch.setattr(server, "on_worker_left", gone)


def a_phase_waits_for_one_who_has_ended_it(patch: Patch) -> None:
    server = lookup("hybrid").Server

    def on(self: Any, now: float, src: int, message: Any) -> Iterator[Any]:
        known = src in self.left or src in self.ended
        if known or not isinstance(message, hybrid.PhaseEnded) or message.phase < self.phase:
            yield from said(self, now, src, message)
        else:
            self.ended[src] = message.w * message.weight, message.weight
            yield from self.change(now)

    said = server.on
    patch.setattr(server, "on", on)


# ---- what schemes are made of ------------------------------------------------------------------------------------
def a_round_closes_without_its_last_member(patch: Patch) -> None:
    patch.setattr(Round, "complete", property(lambda self: len(self.came) >= max(1, len(self.members) - 1)))


def staleness_is_that_of_the_freshest(patch: Patch) -> None:
    apply = ClockedServer._apply

    def flattering(self: ClockedServer, now: float, ranks: Any, *rest: Any) -> None:
        seen, freshest = self.seen, max(self.seen[rank] for rank in ranks)
        self.seen = {**seen, **dict.fromkeys(ranks, freshest)}
        apply(self, now, ranks, *rest)
        self.seen = seen

    patch.setattr(ClockedServer, "_apply", flattering)


def a_newcomer_starts_where_the_fastest_are(patch: Patch) -> None:
    def add(self: Clocks, rank: int) -> None:
        self[rank] = self.high
        self._at.setdefault(self.high, {})[rank] = None

    patch.setattr(Clocks, "add", add)


def one_sample_of_the_global_batch_is_not_dealt(patch: Patch) -> None:
    apportion = batch_sizes.apportion

    def short(total: int, speed: Mapping[int, float], low: int, high: int) -> dict[int, int]:
        return apportion(max(1, total - 1), speed, low, high)

    patch.setattr(batch_sizes, "apportion", short)


def a_leaver_keeps_what_it_hands_over(patch: Patch) -> None:
    hand_over = Holder._hand_over

    def generous(self: Holder) -> Iterator[Any]:
        self.absorb()
        before = self.weight
        yield from hand_over(self)
        self.weight = before

    patch.setattr(Holder, "_hand_over", generous)


def samples_of_an_update_that_was_undone_are_lost(patch: Patch) -> None:
    restored = Leases.restored

    def keeps(self: Leases, done: Any) -> None:
        waiting = list(self._waiting)
        restored(self, done)
        for piece in list(self._waiting):
            self._waiting.discard(piece)
        for piece in waiting:
            self._waiting.add(piece)

    patch.setattr(Leases, "restored", keeps)


def samples_of_an_open_round_are_given_out_again(patch: Patch) -> None:
    fenced = Leases.fenced

    def hasty(self: Leases, rank: int, incarnation: int, pending: Data) -> None:
        fenced(self, rank, incarnation, ())

    patch.setattr(Leases, "fenced", hasty)


def the_wrong_server_is_asked_for_a_copy(patch: Patch) -> None:
    patch.setattr(Replacing, "source", lambda self, server: None if self.rolled_back else (server - 1) % self._count)
