"""Builds configurations from values and TOML files, and writes them.

`cli/support/options.py` merges defaults, the file of `--config` and flags into one mapping, and calls `build`. A run
saves its configuration as `config.toml`; `build(load(path))` makes the same one again, but for the folder and
`--resume`.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.config.config import SECTIONS, Config
from paceline.config.flags import Flag, present_name, settings
from paceline.config.parsing import shown
from paceline.config.task_defaults import take_task_defaults
from paceline.config.validation import check
from paceline.core.errors import ConfigError
from paceline.core.files.regular_file import read_regular
from paceline.core.registry import nearest
from paceline.core.scheme import lookup, names


def build(values: Mapping[str, Mapping[str, Any]]) -> Config:
    """Returns a checked configuration from values by section and key, such as a parsed TOML file.

    Raises ConfigError for unknown sections and keys, naming the nearest one, and for values that do not fit.
    """
    known: dict[str, dict[str, Flag]] = {}
    for setting in settings():
        known.setdefault(setting.section, {})[setting.key] = setting
    # A scheme without parameters has no settings, but its section is allowed, and empty.
    known.update({name: {} for name in names() if name not in known})
    checked: dict[str, dict[str, Any]] = {}
    for section, entries in values.items():
        if not isinstance(entries, Mapping):
            raise ConfigError(f"{shown(section)} = {entries!r} stands outside a section{_section_with(section, known)}")
        if section not in known:
            raise ConfigError(f"unknown section [{shown(section)}]{nearest(section, known)}")
        for key, value in entries.items():
            if key not in known[section]:
                raise ConfigError(f"unknown key {key!r} in [{section}]{nearest(present_name(key), known[section])}")
            checked.setdefault(section, {})[key] = known[section][key].check(value)
    _take_optimizer_of_scheme(checked)
    take_task_defaults(checked)
    # What was not given has its default from the dataclass. Only schemes that were named have an entry in `parameters`,
    # so that the saved file does not freeze defaults of others.
    sections = {name: cls(**checked.get(name, {})) for name, cls in SECTIONS.items()}
    parameters = {name: checked[name] for name in names() if name in checked}
    config = Config(**sections, parameters=parameters)
    check(config)
    return config


def _take_optimizer_of_scheme(checked: dict[str, dict[str, Any]]) -> None:
    """Names the optimizer that the scheme of the run is made for, unless the values name one, or numbers of SGD."""
    own = lookup(checked.get("run", {}).get("scheme", SECTIONS["run"]().scheme)).local_optimizer
    given = checked.get("optimizer", {})
    if own and not given.keys() & {"name", "momentum", "nesterov"}:
        checked["optimizer"] = {"name": own, **given}


def _section_with(word: str, known: Mapping[str, Mapping[str, Flag]]) -> str:
    """Returns the end of an error message about `word`, a key that stands before any section: where it belongs."""
    for section, entries in known.items():
        for key, setting in entries.items():
            if present_name(word) in (key, setting.flag):
                return f"; write it as {key} below [{section}]"
    return nearest(word, known)


def load(path: str | Path, *, named: bool = False) -> dict[str, dict[str, Any]]:
    """Returns the values of a TOML file. Raises ConfigError when it cannot be read.

    named: the user has named the file, so it may be a link or a pipe. Others lie in a folder that may be a stranger's.
    """
    try:
        if named:
            with open(path, "rb") as file:
                return tomllib.load(file)
        return tomllib.loads(read_regular(path).decode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """Returns values by section and key, every default written out; `build` gives the same configuration back.

    Tuples become lists, as TOML has them. Of schemes there are the parameters that were given, and no others: what was
    not given may be fitted to a short run (`Scheme.for_run`), in each process of it.
    """
    values: dict[str, dict[str, Any]] = {name: dataclasses.asdict(getattr(config, name)) for name in SECTIONS}
    for section in values.values():
        section.update({key: list(value) for key, value in section.items() if isinstance(value, tuple)})
    values.update({name: dict(entries) for name, entries in config.parameters.items()})
    return {name: entries for name, entries in values.items() if entries}


def save(config: Config, path: Path) -> None:
    """Writes a configuration as TOML to `path`, without what belongs to this run alone. Raises OSError.

    What was there is replaced: to write into it could follow a link out of the folder, or wait for a FIFO's reader.
    """
    # Imported here, since only processes that write a run's folder need it.
    import tomli_w

    values = to_dict(config)
    values["run"].pop("out")  # a run from this file is another one, with a folder of its own
    values["checkpoint"].pop("resume")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "x", encoding="utf-8", errors="surrogateescape") as file:  # as the names are on disk
            file.write(tomli_w.dumps(values))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
