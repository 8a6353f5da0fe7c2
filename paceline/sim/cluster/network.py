"""Computes when a message arrives, from latency, bandwidth, and the queues at network cards and links.

A card sends one message at a time and takes in one at a time; each direction of a link passes one at a time. A
message leaves once its sender's card has sent what came before it, and has arrived once the receiver's card has
taken in all of it; the two overlap, as bytes flow. Between sites it passes a link as well, behind all else that goes
the same way. A message without vectors costs latency only. Parties on one host share its card, and do not use it
among themselves.

Example: two workers send 125 MB each to one server at t = 0, all cards have 10 Gbit/s and 0.1 ms of latency in all.
125 MB take 0.1 s on a card. The first message arrives at 0.1001 s. The second has left its sender at 0.1 s too, but
the server's card takes it in after the first one: it arrives at 0.2001 s (with `incast` 0).

What a card has to take in queues from the moment it is sent, not from when its first bytes arrive. That costs one
event a message instead of two, is exact while a receiver's senders are equally fast, keeps FIFO between any two
parties, and lets a slow sender hold nobody else up.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.collective import Path
from paceline.sim.cluster.model import Cluster, Host
from paceline.sim.cluster.model import NetworkSpec as Speeds


class Nic:
    """Models a network card by the times until which it sends, and takes in, what is under way.

    `latency_s` is this card's part of the way, in seconds; the sender's and the receiver's add up. Bandwidth is
    given in Gbit/s, and the same in both directions.
    """

    __slots__ = ("host", "latency_s", "receiving_until", "seconds_per_byte", "sending_until", "site")

    def __init__(self, latency_s: float, bandwidth_gbps: float, host: str = "", site: str = "") -> None:
        self.latency_s = latency_s
        self.seconds_per_byte = 8e-9 / bandwidth_gbps
        self.host = host
        self.site = site
        self.sending_until = 0.0
        self.receiving_until = 0.0

    def block(self, until: float) -> None:
        """Lets nothing pass before `until`."""
        self.sending_until = max(self.sending_until, until)
        self.receiving_until = max(self.receiving_until, until)


@dataclass(slots=True)
class Line:
    """Models one direction of a link between two sites, which passes one message at a time."""

    latency_s: float
    seconds_per_byte: float
    busy_until: float = 0.0


class Network:
    """Holds the cards and links of a cluster, and computes arrival times. Times are in virtual seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self.speeds: Speeds = cluster.network
        self._stretch = 1 + cluster.network.incast
        self._local_s_per_byte = 8e-9 / cluster.network.local_bandwidth_gbps
        self._lines: dict[tuple[str, str], Line] = {}
        for link in cluster.links:
            a, b = link.between
            for way in ((a, b), (b, a)):
                self._lines[way] = Line(link.latency_s, 8e-9 / link.bandwidth_gbps)

    def nic(self, host: Host, name: str) -> Nic:
        """Returns a new card for a copy of `host`, with the host's own bandwidth if it has one. The caller keeps one
        per host."""
        gbps = host.bandwidth_gbps or self.speeds.bandwidth_gbps
        return Nic(self.speeds.latency_s / 2 + host.latency_s, gbps, name, host.site)

    def arrival(self, now: float, src: Nic, dst: Nic, nbytes: int) -> float:
        """Occupies both cards, and a link, with a message of `nbytes` sent at `now`; returns when it arrives."""
        if src is dst:
            return self._local(now, src, nbytes)
        seconds = nbytes * src.seconds_per_byte
        free = src.sending_until
        sent = src.sending_until = (now if now > free else free) + seconds
        latency_s = src.latency_s + dst.latency_s
        if src.site != dst.site and (line := self._lines.get((src.site, dst.site))):
            passing = nbytes * line.seconds_per_byte
            # The last byte leaves the line when it has left the card, or later if the line is slower than the card, or
            # once the line has passed all that was before it.
            sent = line.busy_until = max(sent, sent + passing - seconds, line.busy_until + passing)
            latency_s += line.latency_s
            seconds = max(seconds, passing)
        intake = nbytes * dst.seconds_per_byte
        if intake > seconds:  # the slower card sets the pace
            sent += intake - seconds
        free = dst.receiving_until
        # Receivers with a queue take `incast` longer: many senders at once overflow the buffers of a switch.
        if free > now:  # others are before it
            taken = dst.receiving_until = free + intake * self._stretch
        else:
            taken = dst.receiving_until = now + intake
        return (sent if sent > taken else taken) + latency_s

    def _local(self, now: float, nic: Nic, nbytes: int) -> float:
        """Returns when a message within one host arrives: the card and its queues are not used."""
        return now + self.speeds.local_latency_s + nbytes * self._local_s_per_byte

    def cut(self, sites: frozenset[str], until: float) -> None:
        """Lets nothing pass between `sites` and the others before `until`."""
        for (a, b), line in self._lines.items():
            if (a in sites) != (b in sites):
                line.busy_until = max(line.busy_until, until)

    def lines_between(self, sites: list[str]) -> None:
        """Adds a line between sites that no link joins, at no extra cost, so that a partition can cut it."""
        for a in sites:
            for b in sites:
                if a != b:
                    self._lines.setdefault((a, b), Line(0.0, 0.0))

    def path(self, a: Nic, b: Nic, src: int, dst: int) -> Path:
        """Returns what messages from worker `src` at card `a` to worker `dst` at card `b` pass through."""
        if a is b:
            pace = self._local_s_per_byte
            return Path(self.speeds.local_latency_s, ((("by", src), pace), (("to", dst), pace)))
        cards = (("out of", id(a)), a.seconds_per_byte), (("into", id(b)), b.seconds_per_byte)
        line = self._lines.get((a.site, b.site)) if a.site != b.site else None
        if line is None:
            return Path(a.latency_s + b.latency_s, cards)
        between = ("between", (a.site, b.site)), line.seconds_per_byte
        return Path(a.latency_s + b.latency_s + line.latency_s, (*cards, between))
