"""Who may stand around the machines of a party, to record what they are asked and what they decide."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class MachineObserver(Protocol):
    """Observes the machines of one party (`paceline.live.recording.party_decisions`)."""

    def observe(self, name: str, machine: T) -> T:
        """Returns what is to be used in the place of `machine`, which records call `name`."""

    def close(self) -> None:
        """Ends the observation."""


class NoMachineObserver:
    """Stands in for the observer of a run that is not recorded: it changes nothing."""

    def observe(self, name: str, machine: T) -> T:
        return machine

    def close(self) -> None:
        """Does nothing."""
