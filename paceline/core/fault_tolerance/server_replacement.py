"""Says whether the servers of a scheme can be replaced when they are lost, and from what.

from a snapshot    all servers go back to it, and the workers start anew: the boxes of both must be able to
from a copy        the lost one goes on where it was: no shard may answer before its state is copied
"""

from __future__ import annotations

from paceline.core.scheme import Scheme


def why_not_replaced(scheme: Scheme, servers: int) -> str:
    """Returns why no other server can take the place of a lost one, with that many servers; "" when one can."""
    box = scheme.server(servers)
    if box is None or scheme.uses_mean(servers):
        return f"under {scheme.name} servers carry means, of which workers may have different halves by then"
    if not (box.goes_back and scheme.worker(servers).goes_back):
        return f"{scheme.name} cannot go back to an earlier state in the middle of a run"
    return ""


def why_not_copied(scheme: Scheme) -> str:
    """Returns why copies of a server's updates are not all that it has answered; "" when they are."""
    return f"{scheme.name} answers contributions of which no copy knows yet" if scheme.answers_what_no_copy_has else ""
