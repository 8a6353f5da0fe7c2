"""Holds what a run's coordinator is made of, so that a recording can keep it and a replay make the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from paceline import __version__
from paceline import config as configuration
from paceline.config import Config
from paceline.core.coordination import party
from paceline.core.effects import Data
from paceline.core.errors import ConfigError
from paceline.core.samples.shares_kept import KeptShare
from paceline.live.recording.recording_file import FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSetup:
    """Holds what a coordinator is made of, besides its connections.

    trains         the run is of `paceline train`, and not of a loop of one's own
    train_samples  of the data set, by which epochs are counted
    done           leased samples of an earlier incarnation of the run
    behind         samples that it had trained
    shares         where it goes on in the shares of workers
    """

    config: Config
    train_samples: int
    evaluator: bool
    trains: bool
    done: Data = ()
    behind: int = 0
    shares: tuple[KeptShare, ...] = ()

    def header(self) -> dict[str, Any]:
        """Returns the header of a recording of that coordinator."""
        values = configuration.to_dict(self.config)
        values["run"].pop("out")  # a folder's name is of no use elsewhere
        values["checkpoint"].pop("resume")
        names = ("train_samples", "evaluator", "trains", "done", "behind", "shares")
        facts = {name: getattr(self, name) for name in names}
        who = {"party": str(party.COORDINATOR), "paceline": __version__}
        return {**who, **msgspec.to_builtins(facts), "config": values}

    @classmethod
    def of(cls, header: Any) -> CoordinatorSetup:
        """Does the inverse of `header`. Raises ConfigError for what is no header, or one of another version."""
        if not isinstance(header, dict) or header.get("format") != FORMAT or header.get("party") != "coordinator":
            raise ConfigError("this is no recording of a coordinator that this version of Paceline can read")
        try:
            return cls(
                config=configuration.build(header["config"]),
                train_samples=int(header["train_samples"]),
                evaluator=bool(header["evaluator"]),
                trains=bool(header["trains"]),
                done=msgspec.convert(header["done"], Data),
                behind=int(header["behind"]),
                shares=msgspec.convert(header.get("shares", ()), tuple[KeptShare, ...]),
            )
        except (KeyError, TypeError, msgspec.ValidationError) as error:
            raise ConfigError(f"the recording's header cannot be read: {error}") from None
