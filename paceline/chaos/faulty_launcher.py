"""The launcher of a run on this machine, whose parties can be hurt."""

from __future__ import annotations

import dataclasses
import queue
import signal as signals
from typing import Protocol

from paceline.chaos.proxy import ProxySet
from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.runtime.spec.launcher import Launcher, ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec


class LocalProcesses(Launcher, Protocol):
    """Describes a launcher of this machine, whose processes can be signalled."""

    def signal(self, who: Party, number: signals.Signals) -> None:
        """Sends a signal to the party's present process, if there is one."""


class FaultyLauncher:
    """Starts parties as `launcher` does, and hurts them when the fault runner asks for it.

    Where there are relays, parties reach the coordinator by them: its address is replaced in their specifications. Ways
    among the other parties are replaced in the roster, by `ProxiedTransport`.
    """

    def __init__(self, launcher: LocalProcesses, relays: ProxySet | None) -> None:
        self._launcher, self._relays = launcher, relays
        self.ended: queue.SimpleQueue[ProcessEnded] = launcher.ended

    def prepare(self, config: Config) -> int:
        return self._launcher.prepare(config)

    def start(self, spec: ProcessSpec) -> None:
        if self._relays is not None:
            way = self._relays.way(spec.who, party.COORDINATOR, spec.coordinator)
            spec = dataclasses.replace(spec, coordinator=way)
        self._launcher.start(spec)

    def waits(self, who: Party) -> bool:
        return self._launcher.waits(who)

    def busy(self) -> bool:
        return self._launcher.busy()

    def kill(self, who: Party) -> None:
        self._launcher.kill(who)

    def end(self, seconds: float) -> None:
        self._launcher.end(seconds)

    # ---- what is done to them ----------------------------------------------------------------------------
    def signal(self, who: Party, number: signals.Signals) -> None:
        """Sends a signal to a party's present process."""
        self._launcher.signal(who, number)

    def cut_off(self, who: Party) -> None:
        """Lets nothing pass between a party and all others from now on."""
        assert self._relays is not None
        self._relays.cut_off(who)

    def let_through(self, who: Party) -> None:
        """Ends `cut_off`; what was held meanwhile arrives."""
        assert self._relays is not None
        self._relays.let_through(who)
