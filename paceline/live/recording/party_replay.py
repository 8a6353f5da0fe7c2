"""Replays the machines of a worker, a server or the evaluator: they are made anew, and asked what they were asked then.

Which machines these are stands here. What a question means does not: `take` hands it in, and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.core.parties.known_workers import KnownWorkers
from paceline.core.parties.lifecycle import PartyLifecycle
from paceline.core.parties.orders import PartyOrders
from paceline.core.parties.server_restore import ServerRestore
from paceline.live.recording.coordinator_replay import RecordedInput, ReplayedInput
from paceline.live.recording.message_text import actions_text, message_of, raised


class PartyReplay:
    """Asks the machines of one incarnation of a party."""

    def __init__(self, who: Party, incarnation: int) -> None:
        known = KnownWorkers(who)
        self._machines: dict[str, Any] = {
            "orders": PartyOrders(who, known),
            "lifecycle": PartyLifecycle(who, known),
            "restore": ServerRestore(later=incarnation > 0),
        }

    def take(self, recorded: RecordedInput) -> ReplayedInput:
        """Asks one question. Raises ConfigError for one that this version of Paceline does not know."""
        method, args, named = self._question(recorded.what)
        try:
            return ReplayedInput(recorded, actions_text(method(*args, **named), folds_records=False))
        except Exception as error:
            return ReplayedInput(recorded, [raised(error)])

    def _question(self, what: list[Any]) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        match what:
            case [str() as name, list() as args, dict() as named]:
                machine, _, method = name.partition(".")
                asked = getattr(self._machines.get(machine), method, None)
                if asked is not None:
                    return asked, list(map(_value, args)), {key: _value(value) for key, value in named.items()}
        raise ConfigError(f"{what!r:.100} is no question that this version of Paceline knows")


def _value(text: Any) -> Any:
    """Returns the argument of a question: a message, or what it is recorded as."""
    return message_of(text) if isinstance(text, dict) else text
