"""Which workers take part, as far as the coordinator has told one process.

told                             then
Roster                           replaces all that was known; the process is `late` if the run trains already
WorkerLeft                       that worker is in `departed`, and in `lost_ranks` too if it was lost
WorkerJoined                     it is in neither; a newcomer without a role also notes it in `joined`
(its role exists: `entered`)     `joined` is over
"""

from __future__ import annotations

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party


class KnownWorkers:
    """Holds what one process knows of the workers. In a live run one thread writes it, and others read it.

    incarnations   of workers, by rank, where it is not the first
    joining        newcomers that the roster named; this process said Hello after them
    departed       workers that take no further part; `lost_ranks` are those that cannot be asked for anything
    joined         workers that joined between the roster and the role of this process
    late           True for a process that came while training went on
    """

    def __init__(self, me: Party) -> None:
        self._me = me
        self.incarnations: dict[int, int] = {}
        self.joining: tuple[int, ...] = ()
        self.departed: set[int] = set()
        self.lost_ranks: set[int] = set()
        self.joined: set[int] = set()
        self.late = self._has_role = False

    def learn(self, roster: control.Roster) -> None:
        """Replaces all that was known by the roster. An earlier incarnation of this worker itself does not count."""
        self.incarnations = dict(enumerate(roster.incarnations))
        self.late = bool(roster.incarnations)
        own = {self._me.index} if self._me.kind == "worker" else set()
        self.departed, self.lost_ranks = set(roster.gone) - own, set(roster.lost) - own
        self.joining = roster.joining

    def came(self, came: control.WorkerJoined) -> None:
        """Notes a worker that has joined."""
        self.incarnations[came.rank] = came.incarnation
        self.departed.discard(came.rank)
        self.lost_ranks.discard(came.rank)
        if self.late and not self._has_role:
            self.joined.add(came.rank)

    def gone(self, rank: int, *, lost: bool) -> None:
        """Notes that a worker takes no further part."""
        self.departed.add(rank)
        if lost:
            self.lost_ranks.add(rank)

    def entered(self) -> None:
        """Notes that this process has its role."""
        self._has_role = True
