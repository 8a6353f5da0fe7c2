"""Defines the errors that the user has to hear about, each in one sentence with the way out."""

from __future__ import annotations


class PacelineError(Exception):
    """All errors whose message is meant for the user derive from it; they are shown without a traceback."""


class ConfigError(PacelineError, ValueError):
    """A setting is unknown, out of range or contradicts another; found before any process starts."""


class Stopped(Exception):  # noqa: N818  a state, not a fault
    """The run is over; raised at the `yield` of whatever was still waiting."""


class PeerLost(PacelineError):  # noqa: N818
    """The connection to a party was lost before the party said that it leaves."""


class OtherVersion(PeerLost):
    """Another party speaks another version of the protocol, so it cannot be called."""


class NoCoordinator(PeerLost):
    """Nobody answers at the address of the coordinator when a process comes to take part, or not as one of the run."""


class CoordinatorVersion(NoCoordinator):
    """The coordinator speaks another version of the protocol than the process that comes to take part."""


class CoordinatorGone(PeerLost):
    """The connection to the coordinator was lost, and the run with it; this is never the root cause of a failed run."""


class Undone(PeerLost):
    """A request to the servers is void: one of them failed and was replaced from a snapshot. Make the request again."""


class TimedOut(PacelineError):  # noqa: N818
    """A wait outlasted its deadline; the message names what was waited for."""


class Diverged(PacelineError):  # noqa: N818
    """The numbers of the model are no longer finite, whoever computes them."""


class ProtocolError(PacelineError):
    """Bytes arrived that are not a frame of this protocol, or a message that is not expected here."""


class Unexpected(ProtocolError, TypeError):  # noqa: N818  a message, not a fault of who reads it
    """Says that a message arrived which the receiving role does not take."""


NOT_BY_A_MESSAGE = (MemoryError, OSError)
"""What a machine raises when it has no memory or a broken disk, whatever message is handled then."""


def may_be_of_message(error: Exception) -> bool:
    """Returns True if a message may have caused `error`, which a role has raised while it handled that message.

    An error that is meant for the user is about the run, such as that it has diverged. `OutOfMemoryError` is torch's.
    """
    if isinstance(error, PacelineError):
        return isinstance(error, ProtocolError)
    return not isinstance(error, NOT_BY_A_MESSAGE) and type(error).__name__ != "OutOfMemoryError"


def ends_well(error: BaseException | None) -> bool:
    """Returns True if `error` is SystemExit with exit code 0."""
    return isinstance(error, SystemExit) and not error.code


class LockLost(PacelineError):  # noqa: N818
    """Another run has taken over the folder of this one, because this one did not renew its lock for the time of a
    lease.
    """
