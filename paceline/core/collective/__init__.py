"""Says who sends what to whom in which step, for a mean that the members carry among themselves.

Read `schedule.py` first: a schedule is data, built by name (`algorithms.py`), executed by `member.py`, timed by
`cost_model.py` and chosen by `choice.py`. Vectors that cannot be added up on their way are gathered (`allgather.py`).
`mean_server.py` is the way through the servers. Of `core/` it may import `validation/` and the files beside the
folders.
"""

from paceline.core.collective.algorithms import PEERS, Groups, schedule_for
from paceline.core.collective.allgather import GatheredShare, gathering_for
from paceline.core.collective.choice import Choice, Fabric, LinkCost, choose, homes_of
from paceline.core.collective.cost_model import Cost, Path, cost_of, groups
from paceline.core.collective.member import Arithmetic, OutgoingPiece, ScheduleExecution
from paceline.core.collective.schedule import Schedule, Transfer

__all__ = [
    "PEERS",
    "Arithmetic",
    "Choice",
    "Cost",
    "Fabric",
    "GatheredShare",
    "Groups",
    "LinkCost",
    "OutgoingPiece",
    "Path",
    "Schedule",
    "ScheduleExecution",
    "Transfer",
    "choose",
    "cost_of",
    "gathering_for",
    "groups",
    "homes_of",
    "schedule_for",
]
