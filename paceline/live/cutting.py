"""How what is said to the servers is cut, and in which order its parts leave."""

from __future__ import annotations

from typing import Any

from paceline.core.effects import SERVERS, To
from paceline.core.message import scatter
from paceline.core.sharding import Layout
from paceline.live import party
from paceline.live.party import Party


class Cut:
    """By `layout`, which says which server holds what."""

    def __init__(self, layout: Layout) -> None:
        self.slices, self.edges = layout.slices, layout.edges
        order = [(at, server, part) for part, (server, at) in enumerate(layout.homes())]
        # The first slices of all servers first, so that none is idle while another one's are sent.
        self._order = [(part, party.server(server), at) for at, server, part in sorted(order)]

    def parts(self, to: To, whole: Any) -> list[tuple[int, Party, int, Any]]:
        """Number of each part, who gets it, for which of their slices, and the part: in the order of sending."""
        if to == SERVERS:
            pieces = scatter(whole, self.slices)
            return [(part, server, at, pieces[part]) for part, server, at in self._order]
        return [(0, party.COORDINATOR if isinstance(to, str) else party.worker(to), 0, whole)]
