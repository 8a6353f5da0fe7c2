"""The messages that groups of workers need besides those of their inner and outer scheme.

A *term* is the time for which one worker speaks for its group; the coordinator counts the terms of each group.
"""

from __future__ import annotations

from typing import ClassVar

from paceline.core.message import STATE, Nature, message
from paceline.core.validation import bounds


@message("tiers.WhoSpeaks")
class WhoSpeaks:
    """A worker asks the coordinator who speaks for its group in a term later than `after`; answered by Speaker."""

    after: bounds.Count


@message("tiers.Speaker")
class Speaker:
    """Names the speaker of a group, and its term."""

    rank: bounds.Rank
    term: bounds.Count


@message("tiers.Speaks")
class Speaks:
    """Tells the servers that the sender speaks for its group from now on; answered by Heard."""


@message("tiers.Heard")
class Heard:
    """Answers Speaks: the weights `w`, from which the speaker's outer role begins."""

    carries: ClassVar[Nature] = STATE

    w: bounds.Whole
    version: bounds.Count


@message("tiers.Enter")
class EnterGroup:
    """A member asks its speaker to take part. `turn`: the last round that it has finished.

    Answered by GroupBegin, or by RoundBegin where the members average among themselves.
    """

    begins_anew: ClassVar[bool] = True

    turn: bounds.Count


@message("tiers.Begin")
class GroupBegin:
    """The member may begin; `steps` mini-batches make one contribution of it."""

    steps: bounds.Count


@message("tiers.RoundBegin")
class RoundBegin:
    """The group begins round `turn`: `steps` exchanges of its inner scheme, from the weights `w`.

    cast: the numbers of those who take part; `casts` counts them. A new cast begins with new roles.
    """

    carries: ClassVar[Nature] = STATE

    w: bounds.Whole
    turn: bounds.Count
    steps: bounds.Count
    casts: bounds.Count
    cast: bounds.Counts


@message("tiers.Exchanged")
class GroupExchanged:
    """The speaker notifies a member: an exchange between groups has its contributions up to number `clock`."""

    clock: bounds.Count


@message("tiers.AwaitGroup")
class AwaitGroup:
    """A speaker that trains no more asks itself when its group has made the steps that were asked for, or has ended.

    Answered by RoundOver.
    """


@message("tiers.RoundOver")
class RoundOver:
    """Answers the speaker's own call to its group's server: the group has made the steps that were asked for."""
