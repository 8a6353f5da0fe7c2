"""Holds one typed configuration: defaults, then a TOML file, then flags; unknown keys are errors; saved with every run.

Read `sections.py` first: every option with its default, its help and its limits. Parameters of schemes are sections
named after the scheme: `[ssp] staleness = 2` or `--ssp.staleness 2`. May import everything below `runtime/`.
"""

from paceline.config.config import SECTIONS, Config
from paceline.config.flags import Flag, scheme_settings, settings
from paceline.config.sections import CARRIERS, StopSettings
from paceline.config.task_defaults import race_end
from paceline.config.toml_file import build, load, save, to_dict

__all__ = [
    "CARRIERS",
    "SECTIONS",
    "Config",
    "Flag",
    "StopSettings",
    "build",
    "load",
    "race_end",
    "save",
    "scheme_settings",
    "settings",
    "to_dict",
]
