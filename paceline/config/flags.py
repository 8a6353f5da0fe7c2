"""Describes the settings: what each key of the configuration is called, and how a value of it is read and checked.

Every setting is declared once, as a field in `sections.py` or a parameter of a scheme. What it is called elsewhere
follows from that:

    field             section `cluster`, key `dead_after`
    command line      --dead-after 5
    TOML              [cluster] dead_after = 5
    scheme's own      --ssp.staleness 2, or [ssp] staleness = 2

`cli/support/options.py` makes argparse flags of `Flag`s, and `toml_file.py` checks values by them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from paceline.config.config import SECTIONS
from paceline.config.parsing import convert, described, one_line, parse, shown
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.core.scheme import Limits, limits_of, lookup, names, types_of

FORMER_NAMES = {"shares": "partition", "mean": "allreduce", "begin_with": "initial_workers"}
"""Keys of earlier releases, and what they are called now."""


def present_name(key: str) -> str:
    """Returns what an earlier release's `key`, or flag, is called now; `key` itself where it was never renamed."""
    dashes = "--" if key.startswith("--") else ""
    now = FORMER_NAMES.get(key.removeprefix("--").replace("-", "_"))
    return key if now is None else dashes + (now.replace("_", "-") if dashes else now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Describes one key of the configuration: where it is kept, its flag, type, default and limits.

    section, key  where `toml_file.build` finds it
    flag          without the leading dashes
    type          int, float, bool, str, or a tuple of floats or ints
    limits        range, choices or check, with the help text
    launch        `paceline launch` has this flag, too
    variable      scripts find it in their environment
    """

    section: str
    key: str
    flag: str
    type: Any
    default: Any
    limits: Limits
    launch: bool = False
    variable: bool = False

    @property
    def keyword(self) -> str:
        """Returns the name of this setting as an argument of `paceline.train`."""
        return self.flag.replace("-", "_").replace(".", "_")

    def parse(self, text: str) -> Any:
        """Returns the value written as `text` on a command line. Raises ConfigError."""
        try:
            return self.check(parse(text, self.type))
        except ValueError as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"--{self.flag} {shown(text)}: must be {described(self.type)}") from None

    def check(self, value: Any) -> Any:
        """Returns `value`, of TOML or of the command line, in the type of this setting.

        Raises ConfigError, in one line that names the flag, if the type is wrong or a limit refuses the value.
        """
        try:
            value = convert(value, self.type)
        except ValueError:
            raise ConfigError(f"--{self.flag} {shown(value)}: must be {described(self.type)}") from None
        # `file:PATH` stands for the text of that file. It is replaced here, so limits are checked on the text itself.
        if self.limits.file and value.startswith("file:"):
            value = self._contents(Path(value.removeprefix("file:")))
        if self.limits.links and value.startswith("links:"):
            value = self._groups_by_links(value.removeprefix("links:"))
        # Limits are those of one number, also where the setting is a list.
        for single in value if isinstance(value, tuple) else (value,):
            refused = self.limits.refuse(single)
            if refused:
                raise ConfigError(f"--{self.flag} {shown(single)}: {one_line(refused)}{self._hint(single)}")
        return value

    def _contents(self, path: Path) -> str:
        """Returns the text of a file, or raises ConfigError.

        It is read here, where the run is configured: other machines need no copy, and the run keeps its own.
        """
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is no text"
            raise ConfigError(f"--{self.flag} file:{shown(str(path))}: {why}") from None

    def _groups_by_links(self, cluster: str) -> str:
        """Returns the ranks by group, by the links of a cluster file or a ready cluster. Raises ConfigError."""
        # Here, since most commands read flags and need no simulator.
        from paceline.core.adaptive.grouping import written
        from paceline.sim.cluster.near_hosts import groups_by_links
        from paceline.sim.cluster.toml_file import load

        try:
            return written(groups_by_links(load(cluster)))
        except ConfigError as error:
            raise ConfigError(f"--{self.flag} links:{shown(cluster)}: {one_line(str(error))}") from None

    def _hint(self, value: Any) -> str:
        """Returns the end of an error message: the nearest choice, where there is a list of them."""
        listed = bool(self.limits.choices) and isinstance(value, str)
        return nearest(value, self.limits.choices, listed=True) if listed else ""


def settings() -> Iterator[Flag]:
    """Yields every setting: section by section in the order of `Config`, then those of all schemes by name."""
    for section, cls in SECTIONS.items():
        yield from _of_section(section, cls)
    for name in names():
        yield from scheme_settings(name)


def scheme_settings(name: str) -> tuple[Flag, ...]:
    """Returns the settings of the scheme `name`. Raises ConfigError if no scheme has that name."""
    cls: Any = lookup(name)
    return _of_scheme(name, cls)


# Cached: every parser and every TOML file asks for all settings, and resolving type hints is slow.
@cache
def _of_section(section: str, cls: Any) -> tuple[Flag, ...]:
    """Returns the flags of a section, one a field."""
    hints = get_type_hints(cls)
    return tuple(
        Flag(
            section=section,
            key=f.name,
            flag=f.metadata["flag"] or f.name.replace("_", "-"),
            type=hints[f.name],
            default=f.default,
            limits=f.metadata["limits"],
            launch=f.metadata["launch"],
            variable=f.metadata["variable"],
        )
        for f in dataclasses.fields(cls)
    )


@cache
def _of_scheme(name: str, cls: Any) -> tuple[Flag, ...]:
    """Returns the flags of a scheme's parameters, such as `--ssp.staleness`."""
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    hints = types_of(cls)
    return tuple(
        Flag(
            section=name,
            key=key,
            flag=f"{name}.{key.replace('_', '-')}",
            type=hints[key],
            default=defaults[key],
            limits=limits,
        )
        for key, limits in limits_of(cls).items()
    )
