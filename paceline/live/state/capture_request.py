"""A capture as its asker sees it: all servers keep their slices at one version, until the asker has read them.

    asker                                                             servers
    begin: reads the newest version of all, adds how far ahead  ->    Capture(version, purpose, number)
                                                                      each slice is kept when it comes to that version
    reads the states, which wait until all slices are kept      <-    published states, with the number of the capture
    check: all states are of this capture
    forget                                                      ->    Capture(FORGET, purpose)

The evaluator asks for checkpoints, and the coordinator for snapshots. What servers do is in
`paceline.runtime.checkpointing.slice_capture`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.party import Party
from paceline.core.fault_tolerance.snapshots import FORGET
from paceline.live.node.node import Node
from paceline.live.state.slice_state import VERSION, check_one_capture


class CaptureRequest:
    """This asks for the captures of one purpose, one after the other. `number` counts them."""

    def __init__(self, node: Node, purpose: str, tell: Callable[[control.Capture], None]) -> None:
        """`tell` sends a message to all servers."""
        self._node, self._purpose, self._tell = node, purpose, tell
        self.number = 0

    def begin(self, servers: Sequence[Party], ahead: int) -> int:
        """Asks for the version that is `ahead` of the newest that any of `servers` has; returns it.

        Raises PeerLost where a server is lost for good.
        """
        version = int(max(self._node.version_of(server, VERSION) for server in servers)) + ahead
        self.number += 1
        self._tell(control.Capture(version=version, purpose=self._purpose, number=self.number))
        return version

    def check(self, facts: Iterable[dict[str, Any]]) -> None:
        """Raises Mixed unless the facts of all slices are of the capture asked for last."""
        check_one_capture(facts, self.number)

    def forget(self) -> None:
        """Lets servers forget what they kept, or are about to keep."""
        self._tell(control.Capture(version=FORGET, purpose=self._purpose))
