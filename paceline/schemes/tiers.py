"""Tiers: one scheme inside groups of workers, another one between the groups, each of which is one worker to it.

    group G:    one of its workers speaks for it, and has the group's server
    speaker:    the outer worker's box; where it says  g <- grad f(w)  or  H local steps from x,  the group does it:
    worker i:   the inner worker's box; what it has for its servers, or averages, goes to the speaker
                until the group has made H exchanges of the inner scheme from x; what it has then is x' or g
    server:     the outer server's box, with groups in place of workers

An exchange of the inner scheme is to the group what a step is to a worker: a round of all members, or as many pushes
as there are members. Samples are those of the whole group. So bsp in bsp is bsp; one group whose outer scheme is an
average is the inner scheme; bsp inside and asp with 1/Y outside is gsp. Local SGD with tau = kappa_1 inside and an
average of every kappa_2-th of its rounds outside (`bsp(payload=delta, steps=kappa_2)`) is HierFAVG (Liu et al., ICC
2020, Algorithm 1), which we cite for that; the composition of any two is ours.

Inside: a scheme with a clock-gated server (bsp, asp, ssp, dssp, gsp, ksync, dcasgd, ...), or whose members average in
lock-step (esync, localsgd, postlocal, slowmo, diloco in one piece, sparseloco). Outside: a scheme that keeps its model
on servers and has no coordinator (asyncdiloco, decoupled, bsp, asp, ssp, ksync, easgd, ...). Schemes of means are no
outer schemes, but servers compute the same: decoupled(outer_momentum=0.9, fragments=1, tau=0, quorum=0, dynamic=false)
is diloco, and bsp(payload=delta, steps=tau) is localsgd. An outer scheme of gradients needs bsp inside, or `payload` =
delta, with which the group hands over what it has learnt. Two tiers, not more.

Groups: `auto` is by site in a simulated cluster of several, else by host where some host has several workers, else two
halves. `links` is by the links of the simulated cluster, and links:mine.toml by those that `paceline probe` has
measured: hosts between which a megabyte takes at most three times as long as between the nearest are one group. Or
groups are written down: ranks, names of hosts or sites where those are known, or labels.

The speaker is the member that has been there longest. When it is lost the coordinator names the next one, and the group
goes on from the servers' weights: what it did since the last exchange is lost, counts no more and is trained again, and
the momenta of its server and outer worker are lost, too. A speaker that ends before its group does serves it until the
others have ended, too, and hands over what they have made. A group that is lost as a whole is a lost worker to the
others. A lost server ends the run. What a member sends that is not finite is left out, but for what the speaker makes
itself. Members trust it: one that lies to them misleads its own group.

Use it where links within a site are fast and those between sites are slow. Not on one switch: the flat schemes do the
same there with one hop less.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping
from typing import Any

from paceline.core.effects import KEEP
from paceline.core.errors import ConfigError
from paceline.core.message import STATE, Nature
from paceline.core.parameter_syntax import with_parameters
from paceline.core.paramserver.gated_server import GRADIENT, WEIGHTS, ClockedServer
from paceline.core.paramserver.gated_worker import ClockedWorker
from paceline.core.paramserver.options import Delta
from paceline.core.role import Role, RoleContext
from paceline.core.scheme import Paper, RateShare, Scheme, make, parameter, scheme
from paceline.core.tiers.group_choice import WithRankGroups
from paceline.core.tiers.outer_server import OuterServer
from paceline.core.tiers.scheme_text import parse_tier
from paceline.core.tiers.speakers import SpeakersCoordinator
from paceline.core.tiers.worker import TierWorker


class AloneTierWorker(TierWorker):
    """Is a worker whose group's server makes updates: the optimizer is the speaker's."""

    updates_alone = True


class AsyncTierWorker(AloneTierWorker):
    """Is a worker whose group's server makes updates also while the speaker is in a step of its own."""

    updates_meanwhile = True


class AveragingTierWorker(AloneTierWorker):
    """Is a worker whose group averages among its members."""

    averages = True


@scheme(
    "tiers",
    summary="one scheme inside groups of workers, another one between them",
    paper=Paper(
        key="liu2020client",
        authors="Liu, Lumin and Zhang, Jun and Song, S. H. and Letaief, Khaled B.",
        title="Client-Edge-Cloud Hierarchical Federated Learning",
        venue="IEEE International Conference on Communications (ICC)",
        year=2020,
        url="https://arxiv.org/abs/1905.06641",
    ),
)
class Tiers(WithRankGroups):
    inner: str = parameter("bsp", "scheme inside a group, as 'bsp' or 'localsgd(tau=4)'", check=parse_tier)
    outer: str = parameter("asyncdiloco", "scheme between groups, as 'asp(weighting=inverse)'", check=parse_tier)
    needs_peers = True
    mixes_steps = True
    composite = True

    @functools.cached_property
    def inner_scheme(self) -> Scheme:
        return make(*parse_tier(self.inner))

    @functools.cached_property
    def outer_scheme(self) -> Scheme:
        return make(*parse_tier(self.outer))

    # ---- what goes with what -------------------------------------------------------------------------------
    def _refuse_outer(self) -> str:
        own = self.outer_scheme
        for part in (own, self.inner_scheme):
            if part.composite:
                return f"{part.name} is made of several schemes; take one"
        if own.server(1) is None or own.uses_mean(1) or own.needs_peers or own.model_of(1) != "servers":
            return (
                f"{own.name} keeps its model on workers; take decoupled(outer_momentum=0.9, fragments=1, tau=0, "
                "quorum=0), which is diloco on servers, bsp(payload=delta, steps=8), which is localsgd, or "
                "asyncdiloco, bsp or asp as outer"
            )
        if own.Coordinator is not None:
            return f"{own.name} needs a coordinator of its own; take asyncdiloco, decoupled, bsp or asp as outer"
        if own.computes and not issubclass(own.worker(2), ClockedWorker):
            return f"{own.name} says what single workers compute; take asp, ssp or bsp as outer"
        if getattr(own, "memory", KEEP) != KEEP:
            return f"a group has no one optimizer to reset: leave out {own.name}.memory"
        return ""

    def _refuse_inner(self) -> str:
        own, outer = self.inner_scheme, self.outer_scheme
        box = own.server(1)
        clocked = box is not None and issubclass(box, ClockedServer) and getattr(own, "payload", "") != WEIGHTS
        averaging = box is None and own.uses_mean(1) and own.lock_step and not own.needs_peers
        known = "take bsp, asp, ssp, esync, localsgd or diloco as inner"
        if not clocked and not averaging:
            return f"a group has one model, and {own.name} has none or more than one; {known}"
        if clocked and own.lock_step and not own.equal_rounds:
            return f"{own.name} shares a batch out among all workers; {known}"
        if averaging and self._has_own_vectors(own):
            return f"workers of {own.name} hold more than the group's model; {known}, diloco in one fragment, undelayed"
        if not outer.computes:
            return ""
        if not own.whole_rounds or getattr(own, "payload", "") != GRADIENT:
            return f"{outer.name} wants gradients, which {own.name} does not make: {self._way_out(outer)}"
        if getattr(own, "steps", 1) != 1:
            return f"{outer.name} says how many mini-batches make a gradient: give --{outer.name}.steps"
        return ""

    @staticmethod
    def _way_out(outer: Scheme) -> str:
        delta = f", or --{outer.name}.payload delta" if isinstance(outer, Delta) else ""
        return f"take bsp inside{delta}, or asyncdiloco as outer"

    @staticmethod
    def _has_own_vectors(own: Scheme) -> bool:
        place = RoleContext(me=0, workers=(0,), w=_NoNumbers(), update=lambda w, g, samples: w)
        return bool(own.worker(1)(own, place).private)

    def check(self, workers: int, servers: int) -> None:
        super().check(workers, servers)
        for why in (self._refuse_outer(), self._refuse_inner()):
            if why:
                raise ConfigError(f"tiers: {why}")
        self._check_between_groups(servers)

    def _check_between_groups(self, servers: int) -> None:
        """Raises ConfigError where the outer scheme does not fit so many groups; `auto` ones count as two."""
        written = len(self.written())
        groups = written or 2
        try:
            self.outer_scheme.check(groups, servers)
        except ConfigError as error:
            way_out = "" if written else "; groups that are not written down count as two: give tiers.groups"
            raise ConfigError(
                f"tiers: {groups} groups are the workers of {self.outer_scheme.name}: {error}{way_out}"
            ) from None

    @property
    def passes_gradients(self) -> bool:
        """Returns True if the outer scheme's contributions are gradients."""
        return self.outer_scheme.computes

    def rate_share(self, workers: int) -> RateShare:
        groups = len(self.written()) or 2
        if self.passes_gradients:  # servers make the updates, of one gradient a group
            return self.outer_scheme.rate_share(groups)
        return self.inner_scheme.rate_share(-(-workers // groups))

    def inner_for(self, steps: int) -> Scheme:
        """Returns the inner scheme where the outer one asks for a gradient of `steps` mini-batches."""
        own = self.inner_scheme
        return dataclasses.replace(own, steps=steps) if self.passes_gradients else own  # type: ignore[call-arg]

    # ---- what drivers ask ----------------------------------------------------------------------------------
    def completed(self, sections: Mapping[str, Mapping[str, Any]], train_samples: int) -> Scheme:
        def whole(text: str) -> str:
            name, given = parse_tier(text)
            return with_parameters(name, {**sections.get(name, {}), **given})

        return dataclasses.replace(self, inner=whole(self.inner), outer=whole(self.outer))

    def for_run(self, steps: int, given: Collection[str]) -> Scheme:
        name, own = parse_tier(self.outer)
        before = self.outer_scheme
        after = before.for_run(steps, own)
        changed = {key: value for key, value in after.parameters().items() if value != getattr(before, key)}
        return dataclasses.replace(self, outer=with_parameters(name, {**own, **changed})) if changed else self

    def worker(self, servers: int) -> type[Role]:
        if self.passes_gradients:
            return TierWorker
        if self.inner_scheme.server(1) is None:
            return AveragingTierWorker
        return AloneTierWorker if self.inner_scheme.lock_step else AsyncTierWorker

    def nature(self, message: type) -> Nature:
        return self.outer_scheme.nature(message)

    def natures(self, servers: int) -> tuple[set[Nature], set[Nature]]:
        up, down = self.outer_scheme.natures(servers)
        inner_up, inner_down = self.inner_scheme.natures(1)
        return up | inner_up | inner_down | {STATE}, down

    @property
    def trains_locally(self) -> bool:
        return self.inner_scheme.trains_locally

    @property
    def own_momentum(self) -> bool:  # type: ignore[override]
        return self.inner_scheme.own_momentum or self.outer_scheme.own_momentum

    @property
    def one_gate(self) -> bool:
        return self.outer_scheme.one_gate

    @property
    def answers_early(self) -> bool:
        return self.outer_scheme.answers_early

    Worker = TierWorker
    Server = OuterServer
    Coordinator = SpeakersCoordinator


class _NoNumbers:
    """Stands for the weights where only the kind of a role is asked for."""

    def __mul__(self, factor: float) -> _NoNumbers:
        return self

    def __len__(self) -> int:
        return 1 << 20
