"""Keeps what each process uses of its machine, and the throughput of each link, by their latest records."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from paceline.core.trace import LinkTraffic, ResourceUse

RECENT_LINK = 3
"""Records of a link over which its throughput is taken: about six seconds."""
LINKS_SHOWN = 60
"""Links that the page lists, the busiest first."""
LINKS_KEPT = 20_000
"""Links of which something is kept; among a thousand workers each could have one to each other."""
SILENT_TIMES = 2.5
"""A link without a record for so many times its usual interval carries nothing now."""


@dataclass(slots=True)
class LinkState:
    """Describes one link: bytes so far, and the latest records. `sent` is from `party` to `other`."""

    party: str
    other: str
    at: float = 0.0
    sent: int = 0
    received: int = 0
    most: float = 0.0  # bytes a second, both ways
    recent: deque[LinkTraffic] = field(default_factory=lambda: deque(maxlen=RECENT_LINK))

    def add(self, record: LinkTraffic) -> None:
        """Takes a record."""
        self.sent += record.sent
        self.received += record.received
        self.at = max(self.at, record.at)
        if record.seconds > 0:
            self.recent.append(record)
            self.most = max(self.most, (record.sent + record.received) / record.seconds)

    def rates(self, now: float) -> tuple[float, float]:
        """Returns the bytes a second sent and received lately; 0 where nothing was told for some time."""
        usual = sum(record.seconds for record in self.recent) / max(1, len(self.recent))
        since = now - SILENT_TIMES * usual * RECENT_LINK
        recent = [record for record in self.recent if record.at >= since]
        if not recent or now > self.at + SILENT_TIMES * usual:
            return 0.0, 0.0
        seconds = recent[-1].at - recent[0].at + recent[0].seconds
        seconds = max(seconds, sum(record.seconds for record in recent))
        return sum(r.sent for r in recent) / seconds, sum(r.received for r in recent) / seconds

    def row(self, now: float) -> dict[str, Any]:
        """Returns the row of the page. rate: bytes a second, from `party` to `other` and back."""
        rates = self.rates(now)
        return {
            "party": self.party,
            "other": self.other,
            "rate": [round(rate) for rate in rates],
            "most": round(self.most),
            "bytes": [self.sent, self.received],
        }


class Resources:
    """Holds the latest use of each process, and all links."""

    def __init__(self) -> None:
        self.use: dict[str, ResourceUse] = {}
        self.links: dict[tuple[str, str], LinkState] = {}

    def add(self, record: ResourceUse | LinkTraffic) -> None:
        """Takes a record."""
        if isinstance(record, ResourceUse):
            self.use[record.party] = record
        elif (link := self._link(record.party, record.other)) is not None:
            link.add(record)

    def _link(self, party: str, other: str) -> LinkState | None:
        """Returns a link, which is made if it is not known; None where there are too many."""
        if (party, other) not in self.links:
            if len(self.links) >= LINKS_KEPT:
                return None
            self.links[party, other] = LinkState(party, other)
        return self.links[party, other]

    def of(self, party: str) -> dict[str, Any] | None:
        """Returns what a party's process uses; None where it has not told."""
        use = self.use.get(party)
        if use is None:
            return None
        share = use.device_share
        return {
            "memory": use.memory_bytes,
            "cores": round(use.cores, 2),
            "device": [use.device_bytes, use.device_total_bytes] if use.device_total_bytes else None,
            "busy": round(share, 2) if share >= 0 else None,
        }

    def rows(self, now: float, party: str = "", count: int = LINKS_SHOWN) -> list[dict[str, Any]]:
        """Returns the busiest links, of one party or of all: by what they carry now, then by all that they carried."""
        rows = [link.row(now) for link in self.links.values() if not party or party in (link.party, link.other)]
        return sorted(rows, key=lambda row: (-sum(row["rate"]), -sum(row["bytes"]), row["party"], row["other"]))[:count]
