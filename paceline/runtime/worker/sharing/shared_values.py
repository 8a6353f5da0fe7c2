"""Values that the loop of one worker has decided and all workers see: the best model so far, a learning rate.

A measurement that decides (early stopping, the best model, ReduceLROnPlateau) has to be the same on all workers. So one
worker measures the model of all, decides, and shares what it has decided; nobody waits for it:

    the worker that decides     `share` sends the value to the coordinator, which passes it on to all workers
    each worker                 `get` returns the last value that has arrived
    one that comes later        gets the last value of each name with the plan
    after `close`               all have the same, since the coordinator ends the run after passing all on

The worker that decides is worker 0, and while that is lost, or was drained, the next one. Who has done its part and
waits for the others has decided: they do not measure its last epoch again. Where two decide at the same moment, all
workers end up with what the coordinator got last.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from paceline.core.coordination import loop_messages
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.validation.bounds import NAME_MAX, VALUE_MAX
from paceline.live.control.session import Session


class SharedValues:
    """Holds the values of one worker's run."""

    def __init__(self, session: Session, rank: int) -> None:
        self._session, self._rank = session, rank
        self.ended = False  # has this worker left the run?

    @property
    def decides(self) -> bool:
        """Returns True for the worker whose measurements count."""
        return self._session.lost_ranks.issuperset(range(self._rank))

    def share(self, name: str, value: Any) -> None:
        """Gives `value` to all workers. Raises ConfigError for what is not JSON or is too long."""
        if self.ended:
            raise ConfigError(f"pace.share({name!r}, ...) after the worker has left: call it before pace.close()")
        try:
            text = json.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"pace.share({name!r}, ...): {error}; give numbers, texts, lists and dicts") from None
        if len(name) > NAME_MAX or len(text) > VALUE_MAX:
            raise ConfigError(f"pace.share({name[:40]!r}, ...): {len(text)} characters of JSON; at most {VALUE_MAX}")
        self._session.shared_values.share(name, text)
        with contextlib.suppress(PeerLost):  # without a coordinator the run ends in any case
            self._session.tell(loop_messages.ShareValue(name=name, value=text))

    def get(self, name: str, default: Any) -> Any:
        """Returns the last value of that name that has arrived."""
        text = self._session.shared_values.get(name)
        try:
            return default if text is None else json.loads(text)
        except ValueError:  # a worker that keeps no rules has sent what is not JSON
            return default
