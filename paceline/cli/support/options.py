"""Flags from the configuration: every setting is a flag, with its help, its default and its limits.

A setting `max_norm` of the section `gate` is stored in the namespace under `gate.max_norm`, as text; None means
that it was not given. `values_of` parses the text, so one parser serves flags and files. Later sources win: the
defaults, the file of --config, the flags. `PACELINE_VERBOSE` fills in the log level only where neither says one.

The configuration knows all schemes and takes a third of a second to import. The functions that need it import it,
so that verbs without settings, such as `status` and `logs`, answer at once.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.core.scheme import lookup, names
from paceline.observe.formatting.wrapping import terminal_width, wrapped

if TYPE_CHECKING:
    from paceline.config import Config, Flag

TITLES = {
    "run": "what to run",
    "cluster": "the cluster",
    "compression": "compression of what travels",
    "gate": "numbers that servers refuse",
    "robust": "means that stand bad numbers",
    "data": "data",
    "model": "model",
    "optimizer": "optimizer",
    "schedule": "learning-rate schedule (lengths in epochs of all workers together)",
    "stop": "when to stop (whichever comes first, 0 is never)",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
}
SCHEMES = "parameters of schemes"
LOG_LEVEL = "PACELINE_VERBOSE"
"""The environment variable that says `--verbose` for runs which do not."""
CHOICES_MAX = 50
"""Characters of the choices that stand behind a flag."""
OF_A_SCHEME = """--NAME.PARAMETER VALUE, such as --ssp.staleness 2; `paceline schemes NAME` shows those of a scheme."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps description and epilog at the width of the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in wrapped(text, terminal_width() - len(indent)).splitlines())


class Once(argparse.Action):
    """Refuses an option that is given twice, since nobody knows which value was meant. Raises ConfigError."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        if option is not None and self.dest in parser.given:
            parser.error(f"{option} is given twice: give it once")
        parser.given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """Parses words as argparse does, but raises ConfigError for errors and names the nearest option to an unknown one.

    Abbreviations are off: a new option must not change what an old script means.
    """

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("usage", f"{settings['prog']} [options]")
        settings.setdefault("formatter_class", HelpFormatter)
        super().__init__(allow_abbrev=False, **settings)
        self.given: set[str] = set()  # what the words that are being parsed have said
        # Options without an action use the name None, so both names must be registered. `store_const` stays as it
        # is: `-v` may stand twice.
        for name in (None, "store"):
            self.register("action", name, Once)

    def error(self, message: str) -> NoReturn:
        """Raises ConfigError, where argparse would end the process."""
        raise ConfigError(message)

    def parse_all(self, arguments: list[str]) -> argparse.Namespace:
        """Returns the options as `parse_args` does. Raises ConfigError for words that no option takes."""
        self.given.clear()
        namespace, unknown = self.parse_known_args(arguments)
        for word in unknown:
            known = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
            if word.startswith("-"):
                raise ConfigError(f"unknown option {word}{_nearest_option(word.partition('=')[0], known)}")
            raise ConfigError(f"unexpected argument {word!r}; see --help")
        return namespace


def _nearest_option(word: str, known: list[str]) -> str:
    """Returns `; did you mean '--x'?` for a word that is close to an option, or to the former name of one, else `; see
    --help`."""
    from paceline.config.flags import present_name

    hint = nearest(present_name(word), known)
    return hint if "did you mean" in hint else "; see --help"


def add_settings(parser: argparse.ArgumentParser, leave_out: Iterable[str] = ()) -> None:
    """Adds a flag for every setting but those in `leave_out`, and `--config FILE` for all of them.

    The default of each is None, so that `values_of` can tell a flag that was given from one that was not. The help
    leaves the parameters of schemes to `paceline schemes`.
    """
    from paceline import config as configuration

    parser.add_argument("--config", metavar="FILE", help="TOML file with any of the settings; flags override it")
    groups: dict[str, Any] = {}
    for setting in configuration.settings():
        if setting.flag in leave_out:
            continue
        title = TITLES.get(setting.section, SCHEMES)
        if title not in groups:
            groups[title] = parser.add_argument_group(title, OF_A_SCHEME if title == SCHEMES else None)
        _add_setting(groups[title], setting, hidden=title == SCHEMES)


def _add_setting(group: Any, setting: Flag, *, hidden: bool) -> None:
    """Adds the flag of one setting: `--x [BOOL]` for a truth value, with `--no-x` where it is true by default, else
    `--x VALUE`."""
    default = ",".join(map(str, setting.default)) if isinstance(setting.default, tuple) else setting.default
    shown = "" if default in ("", False) else f" (default: {default})"
    # argparse formats help with `%`, so a percent sign is doubled.
    text = f"{help_of(setting)}{shown}".replace("%", "%%")
    kind: dict[str, Any] = {"dest": f"{setting.section}.{setting.key}", "default": None}
    if setting.flag == "verbose":
        for word in ("-v", "-vv"):
            group.add_argument(word, action="store_const", const=str(len(word) - 1), help=argparse.SUPPRESS, **kind)
    kind["help"] = argparse.SUPPRESS if hidden else text
    if setting.type is bool:
        group.add_argument(f"--{setting.flag}", nargs="?", const="true", metavar="BOOL", **kind)
        if setting.default:
            off = kind["help"] if hidden else f"the same as --{setting.flag} false"
            group.add_argument(f"--no-{setting.flag}", action="store_const", const="false", **kind | {"help": off})
    else:
        group.add_argument(f"--{setting.flag}", metavar=metavar_of(setting), **kind)


def metavar_of(setting: Flag) -> str:
    """Returns what stands for the value in the help: the choices, where they fit a line."""
    choices = "{" + ",".join(setting.limits.choices) + "}"
    return choices if 2 < len(choices) <= CHOICES_MAX else setting.key.upper().replace("_", "-")


def help_of(setting: Flag) -> str:
    """Returns the help of a setting, with the choices that do not fit the line above."""
    choices = setting.limits.choices
    listed = choices and not metavar_of(setting).startswith("{")
    return f"{setting.limits.help}: {', '.join(choices)}" if listed else setting.limits.help


def add_detach(parser: argparse.ArgumentParser) -> None:
    """Adds `--detach` and `--write-unit`, for verbs whose runs may outlive their terminal."""
    add = parser.add_argument
    add("--detach", action="store_true", help="lead the run in the background; `paceline attach` shows its output")
    add(
        "--write-unit",
        metavar="FILE.service",
        help="write a systemd unit that leads the run and starts it again from its newest checkpoint, and end",
    )


def values_of(namespace: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns settings by section and key: those of the file, overridden by those of the flags. Raises ConfigError."""
    from paceline import config as configuration

    values = configuration.load(namespace.config, named=True) if namespace.config else {}
    for setting in configuration.settings():
        text = getattr(namespace, f"{setting.section}.{setting.key}", None)
        if text is not None:
            values.setdefault(setting.section, {})[setting.key] = setting.parse(text)
    return with_log_level(values)


def with_log_level(values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns `values`, with the level of $PACELINE_VERBOSE where they say none. Raises ConfigError."""
    text, run = os.environ.get(LOG_LEVEL), values.get("run", {})
    if not text or "verbose" in run:
        return values
    if text not in ("0", "1", "2"):
        raise ConfigError(f"{LOG_LEVEL}={text}: give 0, 1 (connections) or 2 (each message)")
    return {**values, "run": {**run, "verbose": int(text)}}


def config_of(namespace: argparse.Namespace, **run: Any) -> Config:
    """Returns the checked configuration; `run` overrides keys of the section of that name. Raises ConfigError."""
    from paceline import config as configuration

    values = values_of(namespace)
    values["run"] = {**values.get("run", {}), **run}
    config = configuration.build(values)
    # A verb that overrides keys of `run` itself, such as one that compares schemes, may pass the flags of several
    # schemes.
    if not run:
        refuse_other_schemes(namespace, config)
    return config


def refuse_other_schemes(namespace: argparse.Namespace, config: Config) -> None:
    """Raises ConfigError for a flag of a scheme that the run does not use. A file may have sections for several."""
    from paceline import config as configuration

    used = config.run.scheme
    if lookup(used).composite:  # other schemes are parts of it
        return
    for name in names():
        for setting in configuration.scheme_settings(name) if name != used else ():
            if getattr(namespace, f"{setting.section}.{setting.key}", None) is not None:
                raise ConfigError(f"--{setting.flag}: the scheme is {used}; leave it out, or give --scheme {name}")
