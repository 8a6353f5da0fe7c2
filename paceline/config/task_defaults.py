"""Fills in what a task needs and nobody has said: a language model is not trained as a network on digits is.

`toml_file.build` calls `take_task_defaults` with the values that were given, before the defaults of the sections.
A value that was given always wins, and a saved configuration has all of them.

    setting           default, where the data is text                  else
    --data, --model   each names the other: text, gpt                  digits, mlp
    --optimizer       adamw, unless a number of SGD is given           sgd
    --lr              0.005 of adam and adamw, 0.03 of muon            0.15
    --batch-size      8                                                32
    --epochs          1, where no other rule ends the run              20
    --step-ms         100 for gpt as it is; 20 for mlp and lenet       none; only where --slowdown is given

A race without a rule for its end stops at a target (`race_end`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.engine.specs import LANGUAGE_DATA, LANGUAGE_MODEL, MUON

Values = dict[str, dict[str, Any]]

LANGUAGE_LR = {"adam": 0.005, "adamw": 0.005, MUON: 0.03}
"""Learning rate by optimizer; docs/papers/lm.md has the grid of Muon's."""
LANGUAGE_BATCH = 8
LANGUAGE_EPOCHS = 1.0
STEP_MS = {LANGUAGE_MODEL: 100.0, "mlp": 20.0, "lenet": 20.0}
"""Duration of an emulated step by network. It is several times what a step takes on one CPU core."""
RESIZE = {"model": ("width", "depth"), "data": ("context", "batch_size")}
"""Settings that make a step longer or shorter. Where one is given, `--slowdown` still asks for `--step-ms`."""
SGD_ONLY = ("momentum", "nesterov")
ENDS = ("epochs", "samples", "seconds", "steps", "target_accuracy", "target_loss", "until_stopped")


@dataclass(frozen=True, slots=True)
class RaceEnd:
    """Says where a race on a data set ends by default; `setting` is a key of the section `stop`."""

    setting: str
    value: float
    epochs: float

    def __str__(self) -> str:
        """Returns `test loss 3.2 (--target-loss) or 1 epoch (--epochs)`."""
        what, epochs = self.setting.replace("_", "-"), f"{self.epochs:g} epoch{'' if self.epochs == 1 else 's'}"
        return f"{what.replace('target-', 'test ')} {self.value:g} (--{what}) or {epochs} (--epochs)"


RACE_ENDS = {
    "digits": RaceEnd("target_accuracy", 0.95, 20.0),
    LANGUAGE_DATA: RaceEnd("target_loss", 3.2, LANGUAGE_EPOCHS),
}
"""By data set: every scheme of the catalogue reaches it within some minutes. Other data has no default target."""


def take_task_defaults(checked: Values) -> None:
    """Adds the defaults of the task to `checked`, values by section and key. Scripts have a task of their own."""
    if checked.get("run", {}).get("script") or checked.get("stop", {}).get("until_stopped"):
        return
    resized = any(key in checked.get(section, {}) for section, keys in RESIZE.items() for key in keys)
    if _is_language(checked):
        _take_language(checked)
    cluster, network = checked.get("cluster", {}), checked.get("model", {}).get("name", "mlp")
    if cluster.get("slowdown") and "step_ms" not in cluster and network in STEP_MS and not resized:
        cluster["step_ms"] = STEP_MS[network]


def race_end(values: Mapping[str, Mapping[str, Any]]) -> RaceEnd | None:
    """Returns where a race of these values ends; None where they say it, or where the data has no default target."""
    if any(key in values.get("stop", {}) for key in ENDS):
        return None
    data = LANGUAGE_DATA if _is_language(values) else values.get("data", {}).get("name", "digits")
    return RACE_ENDS.get(data)


def _is_language(values: Mapping[str, Mapping[str, Any]]) -> bool:
    """Returns True if a text is trained; gpt reads nothing else."""
    model = values.get("model", {}).get("name")
    return bool(values.get("data", {}).get("name", LANGUAGE_DATA if model == LANGUAGE_MODEL else "") == LANGUAGE_DATA)


def _take_language(checked: Values) -> None:
    """Adds the defaults of a language model."""
    checked.setdefault("model", {}).setdefault("name", LANGUAGE_MODEL)
    data, optimizer = checked.setdefault("data", {}), checked.setdefault("optimizer", {})
    data.setdefault("name", LANGUAGE_DATA)
    stop = checked.setdefault("stop", {})
    if not any(stop.get(key) for key in ENDS):
        stop.setdefault("epochs", LANGUAGE_EPOCHS)
    if not optimizer.keys() & set(SGD_ONLY):
        optimizer.setdefault("name", "adamw")
    if optimizer.get("name") in LANGUAGE_LR:
        optimizer.setdefault("lr", LANGUAGE_LR[optimizer["name"]])
    data.setdefault("batch_size", LANGUAGE_BATCH)
