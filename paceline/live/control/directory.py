"""Where each process of the run is, and which workers take part, as far as the coordinator has told this process."""

from __future__ import annotations

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party


class PartyDirectory:
    """The transport's thread writes it, message by message; the party's own thread reads it.

    addresses, hosts   by the text of a party
    incarnations       of workers, by rank, where it is not the first
    joining            newcomers that the roster named; this process said hello after them
    departed           workers that take no further part; `lost_ranks` are those that cannot be asked for anything
    late               True when this process came while training went on
    """

    def __init__(self, me: Party) -> None:
        self._me = me
        self.addresses: dict[str, str] = {}
        self.hosts: dict[str, str] = {}
        self.incarnations: dict[int, int] = {}
        self.joining: tuple[int, ...] = ()
        self.departed: set[int] = set()
        self.lost_ranks: set[int] = set()
        self.late = False

    def learn(self, roster: control.Roster) -> None:
        """Replaces all that was known by the roster.

        It runs on the transport's thread, before the next message, so that no later change is overwritten.
        """
        self.addresses, self.hosts = dict(roster.addresses), dict(roster.hosts)
        self.incarnations = dict(enumerate(roster.incarnations))
        self.late = bool(roster.incarnations)
        own = {self._me.index} if self._me.kind == "worker" else set()  # an earlier incarnation of this worker is gone
        self.departed, self.lost_ranks = set(roster.gone) - own, set(roster.lost) - own
        self.joining = roster.joining

    def came(self, came: control.WorkerJoined) -> None:
        """Notes where a worker is that has joined."""
        who = str(party.worker(came.rank))
        self.addresses[who], self.hosts[who] = came.address, came.host
        self.incarnations[came.rank] = came.incarnation
        self.departed.discard(came.rank)
        self.lost_ranks.discard(came.rank)

    def gone(self, rank: int, *, lost: bool) -> None:
        """Notes that a worker takes no further part."""
        self.departed.add(rank)
        if lost:
            self.lost_ranks.add(rank)

    def parties(self) -> list[Party]:
        """Returns all parties of the roster."""
        return list(map(Party.parse, self.addresses))

    def incarnation_of(self, who: Party) -> int:
        """Returns a worker's incarnation; 0 for all other parties."""
        return self.incarnations.get(who.index, 0) if who.kind == "worker" else 0

    def host_of(self, who: Party) -> str:
        """Returns the host of a party, "" where it is unknown."""
        return self.hosts.get(str(who), "")

    def can_be_called(self, rank: int) -> bool:
        """Returns True for a worker that is there, or was joining before this process heard of it."""
        return rank not in self.lost_ranks or rank in self.joining
