"""Who sends what to whom in which step, for a mean that the members carry among themselves.

A schedule is data: built by name (`schedule_for`), checked by itself, executed by `Part` over whatever brings its
pieces, timed by `cost`, and chosen by `choice`. What cannot be added up on its way is gathered along the same
transfers.
"""

from paceline.core.collective.choice import Choice, Fabric, Link, choose, homes_of
from paceline.core.collective.cost import Cost, Path, cost_of, groups
from paceline.core.collective.gather import Share, gathering_for
from paceline.core.collective.part import Arithmetic, Outgoing, Part
from paceline.core.collective.schedule import Schedule, Transfer
from paceline.core.collective.schedules import PEERS, Groups, schedule_for

__all__ = [
    "PEERS",
    "Arithmetic",
    "Choice",
    "Cost",
    "Fabric",
    "Groups",
    "Link",
    "Outgoing",
    "Part",
    "Path",
    "Schedule",
    "Share",
    "Transfer",
    "choose",
    "cost_of",
    "gathering_for",
    "groups",
    "homes_of",
    "schedule_for",
]
