"""What can go wrong in a way that the user has to hear about, in one sentence with the way out."""

from __future__ import annotations


class PacelineError(Exception):
    """Base of all errors whose message is meant for the user; shown without a traceback."""


class ConfigError(PacelineError, ValueError):
    """A setting is unknown, out of range or contradicts another; found before any process starts."""


class Stopped(Exception):  # noqa: N818  a state, not a fault
    """The run is over; raised at the `yield` of whatever was still waiting."""


class PeerLost(PacelineError):  # noqa: N818
    """A party went away without saying goodbye."""


class CoordinatorGone(PeerLost):
    """The coordinator went away, and the run with it: whoever ends for that is not why the run failed."""


class Undone(PeerLost):
    """What was asked of the servers is void: one was lost and another one has taken its place. Ask again."""


class TimedOut(PacelineError):  # noqa: N818
    """A wait outlasted its deadline; the message names what was waited for."""


class Diverged(PacelineError):  # noqa: N818
    """The numbers of the model are no longer finite, whoever computes them."""


class ProtocolError(PacelineError):
    """Bytes that are not a frame of this protocol, or a message nobody expects here."""


class Unexpected(ProtocolError, TypeError):  # noqa: N818  a message, not a fault of who reads it
    """A message for which the role that got it has no use."""


def ends_well(error: BaseException | None) -> bool:
    """Is it SystemExit with exit code 0?"""
    return isinstance(error, SystemExit) and not error.code


class LockLost(PacelineError):  # noqa: N818
    """Another run has taken the folder of this one over, since nothing was seen of this one for the time of a lease."""
