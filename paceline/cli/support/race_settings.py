"""Makes the configurations of a race: one for each scheme, all with the same end.

A race compares how long schemes take to a target. So where nobody says how it ends, it ends at the data's own target
(`paceline/config/task_defaults.py`), and a line says so before the first run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from paceline import config as configuration
from paceline.config import Config


def with_race_end(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns `values` by section and key, with the default end of a race where they have none."""
    copied = {section: dict(entries) for section, entries in values.items()}
    if (end := configuration.race_end(values)) is not None:
        copied["stop"] = {**copied.get("stop", {}), end.setting: end.value, "epochs": end.epochs}
    return copied


def configured(values: Mapping[str, Mapping[str, Any]], scheme: str) -> Config:
    """Returns the checked configuration of one run of the race. Raises ConfigError."""
    return configuration.build({**values, "run": {**values.get("run", {}), "scheme": scheme}})


def tell_defaults(values: Mapping[str, Mapping[str, Any]], config: Config) -> None:
    """Prints on stderr what `config` has of the end and of the length of a step that `values` do not say."""
    if (end := configuration.race_end(values)) is not None:
        print(f"each run ends at {end}: the default for {config.data.name}", file=sys.stderr)
    if config.cluster.slowdown and "step_ms" not in values.get("cluster", {}):
        step_ms = f"{config.cluster.step_ms:g} ms"
        print(
            f"a step lasts {step_ms} (--step-ms) times --slowdown: the default for {config.model.name}", file=sys.stderr
        )
