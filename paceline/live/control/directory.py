"""Where each process of the run is, as far as the coordinator has told this process.

Which workers take part is known by the code that simulated runs have too (`paceline.core.parties.known_workers`).
"""

from __future__ import annotations

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.parties.known_workers import KnownWorkers


class PartyDirectory(KnownWorkers):
    """The transport's thread writes it, message by message; the party's own thread reads it.

    addresses, hosts: by the text of a party.
    """

    def __init__(self, me: Party) -> None:
        super().__init__(me)
        self.addresses: dict[str, str] = {}
        self.hosts: dict[str, str] = {}

    def learn(self, roster: control.Roster) -> None:
        """Replaces all that was known by the roster.

        It runs on the transport's thread, before the next message, so that no later change is overwritten.
        """
        self.addresses, self.hosts = dict(roster.addresses), dict(roster.hosts)
        super().learn(roster)

    def came(self, came: control.WorkerJoined) -> None:
        """Notes where a worker is that has joined."""
        who = str(party.worker(came.rank))
        self.addresses[who], self.hosts[who] = came.address, came.host
        super().came(came)

    def parties(self) -> list[Party]:
        """Returns all parties of the roster."""
        return list(map(Party.parse, list(self.addresses)))  # a copy: others may join meanwhile

    def incarnation_of(self, who: Party) -> int:
        """Returns a worker's incarnation; 0 for all other parties."""
        return self.incarnations.get(who.index, 0) if who.kind == "worker" else 0

    def host_of(self, who: Party) -> str:
        """Returns the host of a party, "" where it is unknown."""
        return self.hosts.get(str(who), "")

    def computing_here(self) -> int:
        """Returns how many workers and servers are on the host of this party, those that may still join included."""
        here = self.host_of(self._me)
        found = [who for who, host in self.hosts.items() if host == here]
        return sum(Party.parse(who).kind in ("worker", "server") for who in found)

    def can_be_called(self, rank: int) -> bool:
        """Returns True for a worker that is there, or was joining before this process heard of it."""
        return rank not in self.lost_ranks or rank in self.joining
