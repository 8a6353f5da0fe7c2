"""The contract with a training script: a few environment variables say which place its process has.

PACELINE_COORDINATOR  address of the coordinator; without it the process is alone
PACELINE_RANK         rank of this worker, from 0
PACELINE_WORKERS      how many workers take part
PACELINE_SERVERS      how many servers take part
PACELINE_TOKEN_FILE   file with the run's token, readable by its owner only
PACELINE_DEVICE       device of this worker: auto, cpu, cuda:0, ...
PACELINE_SLOT         number of this worker among those of its host; by it `auto` finds a GPU
PACELINE_STEP_SECONDS emulation: a step lasts at least this long
PACELINE_BATCH_LIMIT  samples of this worker's largest batch; 0 for any
PACELINE_PART_SIZE    samples that this worker's memory holds at once, as it has found before; 0: whole batches
PACELINE_BIND         address to listen on
PACELINE_CREDENTIALS  folder with this worker's key and certificate, where connections are under TLS
PACELINE_INCARNATION  which incarnation of this worker this is, from 0
PACELINE_OUT          folder of the run
PACELINE_RESUME       checkpoint to go on from, a folder; empty for a new start
PACELINE_PROCESS      file that describes the process, of one that is no worker: the evaluator

Settings of the run that are declared with `variable=True` (`paceline.config.sections`):

PACELINE_TRANSPORT    how vectors pass between processes of one host: auto, shm, tcp
PACELINE_ALLREDUCE    who averages among equals: the choices of --allreduce
PACELINE_TIMEOUT      bound of every wait, in seconds
PACELINE_LR_SCALE     factor on the rate of updates: auto, none or a number
PACELINE_STEPS        leave after so many steps of one's own; 0 for never
PACELINE_VERBOSE      1: log connections, 2: log each message as well

Where the command says which scheme it is (`paceline race`, `paceline probe`), whatever the script says:

PACELINE_SCHEME             its name
PACELINE_SCHEME_PARAMETERS  its parameters, as JSON

Of processes that somebody else starts see `paceline.launch.external.detect`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from paceline import config as configuration
from paceline.config import Config
from paceline.config.parsing import parse, written
from paceline.core.coordination import party
from paceline.core.errors import ConfigError
from paceline.core.files.regular_file import read_regular

if TYPE_CHECKING:
    from paceline.runtime.spec.process_spec import ProcessSpec

PREFIX = "PACELINE_"
"""All variables for a script begin with this."""
TOKEN_BYTES_MAX = 4096
"""Bytes of the file with the token; a larger one holds no token."""
PROCESS = PREFIX + "PROCESS"
"""The variable of a process that is no worker, such as the evaluator of a script."""

Environment = Mapping[str, Mapping[str, str]]
"""Variables by kind of party."""


_IDENTITY = (
    "coordinator",
    "workers",
    "servers",
    "device",
    "slot",
    "step_seconds",
    "batch_limit",
    "part_size",
    "bind",
    "credentials",
    "incarnation",
    "resume",
)
"""Fields of a ProcessSpec that scripts find under their own names."""


def _variables() -> list[configuration.Flag]:
    """Returns the settings that are in a script's environment."""
    return [setting for setting in configuration.settings() if setting.variable]


def environment_of(spec: ProcessSpec, token_file: Path) -> dict[str, str]:
    """Returns what a script's process finds in its environment."""
    values: dict[str, Any] = {name: getattr(spec, name) for name in _IDENTITY}
    values |= {"rank": spec.who.index, "token_file": token_file}
    values |= {setting.key: getattr(getattr(spec.config, setting.section), setting.key) for setting in _variables()}
    values |= {"out": Path(spec.config.run.out).absolute()} if spec.config.run.out else {}
    return {PREFIX + name.upper(): written(value) for name, value in values.items()}


def run_folder_from(environment: Mapping[str, str]) -> str:
    """Returns the folder of the run; "" where nobody has told."""
    return environment.get(PREFIX + "OUT", "")


def scheme_variables(config: Config) -> dict[str, str]:
    """Returns variables by which a script's `join` takes the scheme of the configuration instead of its own."""
    parameters = config.parameters.get(config.run.scheme, {})
    return {f"{PREFIX}SCHEME": config.run.scheme, f"{PREFIX}SCHEME_PARAMETERS": json.dumps(parameters)}


def scheme_from(environment: Mapping[str, str], scheme: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the scheme of a script and its parameters: those of the command, where it names one.

    Parameters that the script gives to the same scheme hold where the command says nothing. Raises ConfigError.
    """
    wanted = environment.get(PREFIX + "SCHEME", "")
    if not wanted:
        return scheme, parameters
    if wanted != scheme and environment.get(PREFIX + "RANK", "0") == "0":
        print(f"paceline: the command says --scheme {wanted}, so scheme={scheme!r} of join is not used", flush=True)
    try:
        given = json.loads(environment.get(PREFIX + "SCHEME_PARAMETERS") or "{}")
        return wanted, {**(parameters if wanted == scheme else {}), **given}
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{PREFIX}SCHEME_PARAMETERS: must be a JSON object ({error})") from None


def split_environment(items: Sequence[str], ours: Mapping[str, str]) -> tuple[dict[str, str], Environment]:
    """Returns what `--env` asks for: for everybody, and by kind of party.

    Items are `K=V`, or `K` for the value that is in `ours`; with `worker:` or `server:` before them they are for
    parties of that kind. Raises ConfigError.
    """
    everybody: dict[str, str] = {}
    by_role: dict[str, dict[str, str]] = {"worker": {}, "server": {}}
    for item in items:
        kind, colon, rest = item.partition(":")
        of_a_kind = bool(colon) and kind in by_role
        name, equals, value = (rest if of_a_kind else item).partition("=")
        if not name or not name.replace("_", "a").isalnum() or name[0].isdigit():
            raise ConfigError(f"--env {item}: write K=V, K, worker:K=V or server:K=V")
        if not equals and name not in ours:
            raise ConfigError(f"--env {name}: it is not set here; give --env {name}=VALUE")
        (by_role[kind] if of_a_kind else everybody)[name] = value if equals else ours[name]
    return everybody, by_role


def incarnation_from(environment: Mapping[str, str]) -> int:
    """Returns which incarnation of its worker a process belongs to, from 0."""
    text = environment.get(PREFIX + "INCARNATION", "")
    return int(text) if text.isdecimal() else 0


def settings_from(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns the settings that the environment has, by section and key. Raises ValueError."""
    told: dict[str, dict[str, Any]] = {}
    for setting in _variables():
        text = environment.get(PREFIX + setting.key.upper())
        if text is not None:
            told.setdefault(setting.section, {})[setting.key] = parse(text, setting.type)
    return told


def _config_from(environment: Mapping[str, str]) -> Config:
    """Returns a configuration with those settings. Raises ValueError."""
    told = settings_from(environment)
    return Config(**{section: configuration.SECTIONS[section](**values) for section, values in told.items()})


def spec_from(environment: Mapping[str, str]) -> ProcessSpec | None:
    """Returns the spec described there; None for a process that is alone. Raises ConfigError when something is
    wrong."""
    if PREFIX + "COORDINATOR" not in environment:
        return None

    def get(name: str, default: str | None = None) -> str:
        """Returns a variable without its prefix. Raises ConfigError where it is needed and not set."""
        value = environment.get(PREFIX + name, default)
        if value is None:
            raise ConfigError(f"{PREFIX}COORDINATOR is set, so {PREFIX}{name} must be too; see `paceline launch`")
        return value

    from paceline.runtime.spec.process_spec import ProcessSpec

    if path := environment.get(PROCESS):
        return ProcessSpec.from_json(Path(path).read_text(encoding="utf-8"))
    types = get_type_hints(ProcessSpec)
    optional = [name for name in _IDENTITY if PREFIX + name.upper() in environment]
    values: dict[str, Any] = {"device": "auto", "servers": 1}
    try:
        rank, workers = int(get("RANK")), int(get("WORKERS"))
        if not 0 <= rank < workers:
            raise ConfigError(f"{PREFIX}RANK={rank}: ranks of {workers} workers go from 0 to {workers - 1}")
        values |= {name: parse(get(name.upper()), types[name]) for name in optional}
        return ProcessSpec(
            party=str(party.worker(rank)),
            token=read_regular(get("TOKEN_FILE"), TOKEN_BYTES_MAX, follow=True).decode().strip(),
            config=_config_from(environment),
            **values,
        )
    except OSError as error:
        raise ConfigError(f"{PREFIX}TOKEN_FILE: {error.filename}: {error.strerror}") from None
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"the {PREFIX}* environment cannot be read: {error}") from None
