"""One typed configuration: defaults, then a TOML file, then flags; unknown keys are errors; saved with every run.

Parameters of schemes live in sections named after the scheme: `[ssp] staleness = 2` or `--ssp.staleness 2`.

sections        every option: default, help, limits       contradictions  what does not go together
whole           the configuration of a run                settings        keys and flags
values          single values                             files           TOML, and back
"""

from paceline.config.files import build, load, save, to_dict
from paceline.config.sections import CARRIERS, Stop
from paceline.config.settings import Setting, scheme_settings, settings
from paceline.config.whole import Config

__all__ = ["CARRIERS", "Config", "Setting", "Stop", "build", "load", "save", "scheme_settings", "settings", "to_dict"]
