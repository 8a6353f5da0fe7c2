"""Who is told of everything that happens at a coordinator."""

from __future__ import annotations

from typing import Protocol

from paceline.core.trace import Record
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control


class CoordinatorListener(Protocol):
    """Hears of everything, on the coordinator's thread."""

    def joined(self, who: Party, hello: control.Hello) -> None: ...
    def started(self, plan: control.Plan) -> None: ...
    def progressed(self, rank: int, progress: control.Progress) -> None: ...
    def recorded(self, record: Record) -> None: ...
    def failed(self, who: Party, cause: str, details: str) -> None: ...
    def finished(self, reason: str, seconds: float) -> None: ...
