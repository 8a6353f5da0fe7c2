"""A session of Theano-MPI: the settings of `launch_session.cfg`, and the command of `paceline launch` that it becomes.

    RULE=BSP
    MODELFILE=theanompi.models.alex_net
    MODELCLASS=AlexNet
    DEVICES=("node0:cuda0,cuda1" "node1:cuda0")      or DEVICES=cuda0,cuda1
    BSP_SYNC_TYPE=cdd
    BSP_EXCH_STRATEGY=nccl32

Theano-MPI has a shell source the file. Here nothing of it is executed: it may have comments and assignments of words
and of arrays of words.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.compat.theanompi.exchange import exchange_of, scheme_of
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

RULES = ("BSP", "EASGD", "GOSGD")
KEYS = {
    "RULE": "rule",
    "MODELFILE": "modelfile",
    "MODELCLASS": "modelclass",
    "DEVICES": "devices",
    "BSP_SYNC_TYPE": "sync_type",
    "BSP_EXCH_STRATEGY": "exch_strategy",
}
WORKER = "paceline.compat.theanompi.worker"
ALPHA, TAU, P = 0.5, 10, 0.01
"""Theano-MPI's own constants, of EASGD and GOSGD."""
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(\([^)]*\)|.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TheanoMpiSession:
    """Holds one session. `devices`: as Theano-MPI names them, each `cuda0` or `node0:cuda0,cuda1`.

    settings: of the models of this package, by name (`torch_model.py`); Theano-MPI has those in the source of a model.
    """

    rule: str
    devices: tuple[str, ...]
    modelfile: str
    modelclass: str
    sync_type: str = "cdd"
    exch_strategy: str = "nccl32"
    settings: Mapping[str, str] = field(default_factory=dict)


def read_session(path: Path) -> dict[str, str | tuple[str, ...]]:
    """Returns the values of a session file by the fields of `TheanoMpiSession`.

    Raises ConfigError for what is no such file.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"-cfg={path}: cannot be read ({error})") from None
    found: dict[str, str | tuple[str, ...]] = {}
    for number, line in _lines(text):
        where = f"{path}, line {number}"
        match = _ASSIGNMENT.fullmatch(line)
        if not match:
            raise ConfigError(f"{where}: {line.strip()!r} is no assignment; the file is read, not executed")
        name, value = match.groups()
        if name not in KEYS:
            raise ConfigError(f"{where}: {name} is no setting of a session{nearest(name, KEYS)}")
        words = _words(value.strip().removeprefix("(").removesuffix(")"), where)
        found[KEYS[name]] = tuple(words) if name == "DEVICES" else " ".join(words)
    return found


def _lines(text: str) -> list[tuple[int, str]]:
    """Returns the statements with the numbers of their first lines; an array may have several lines."""
    statements: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("#")[0]
        if statements and statements[-1][1].count("(") > statements[-1][1].count(")"):
            begin, before = statements.pop()
            statements.append((begin, f"{before} {code}"))
        elif code.strip():
            statements.append((number, code))
    return statements


def _words(value: str, where: str) -> list[str]:
    if re.search(r"[$`;&|<>]", value):
        raise ConfigError(f"{where}: {value!r} is a command of the shell; write the value itself")
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def hosts_and_devices(devices: Sequence[str]) -> list[tuple[str, str]]:
    """Returns host and device of each place: ("", "cuda:0") for `cuda0`. Raises ConfigError."""
    places = []
    for entry in devices:
        host, _, names = entry.rpartition(":")
        for name in filter(None, names.split(",")):
            match = re.fullmatch(r"(?:cuda|gpu)(\d+)", name)
            if not match and name != "cpu":
                raise ConfigError(f"device {entry!r}: must be cudaN or cpu, or HOST:cuda0,cuda1")
            places.append((host, f"cuda:{match[1]}" if match else "cpu"))
    if not places:
        raise ConfigError("no device is named: give devices=['cuda0', 'cuda1']; 'cpu' may be named several times")
    return places


def launched(session: TheanoMpiSession, folder: Path | None = None) -> tuple[list[str], list[str]]:
    """Returns the words after `paceline launch`, and the lines that say what is not the same here.

    folder: where a hosts file is written, if the session names hosts; None: it is only named. Raises ConfigError.
    """
    if session.rule not in RULES:
        raise ConfigError(f"RULE={session.rule}: must be one of {', '.join(RULES)}{nearest(session.rule, RULES)}")
    places = hosts_and_devices(session.devices)
    options, scheme, lines = _options(session, places)
    if session.rule == "EASGD":
        places = places[1:]
    words = ["-n", str(len(places)), *options]
    if any(host for host, _ in places):
        words += ["-H", str(_hosts_file(places, folder))]
    else:
        words += ["--device", ",".join(device for _, device in places)]
    worker = [sys.executable, "-m", WORKER, session.rule, session.modelfile, session.modelclass, *scheme]
    worker += [f"{name}={value}" for name, value in session.settings.items()]
    return words + worker, lines


def _options(session: TheanoMpiSession, places: Sequence[tuple[str, str]]) -> tuple[list[str], list[str], list[str]]:
    """Returns options of the launcher, the scheme with its parameters for the worker, and lines for the user."""
    if session.rule == "EASGD":
        if len(places) < 2:
            raise ConfigError("EASGD: the first device is the server's, so name two or more")
        lines = [f"EASGD: the server needs no device, so {places[0][1]} stays idle; alpha {ALPHA}, tau {TAU}"]
        return ["-s", "1"], ["--scheme=easgd", f'--parameters={{"alpha": {ALPHA}, "tau": {TAU}}}'], lines
    if session.rule == "GOSGD":
        return ["-s", "0"], ["--scheme=gosgd", f'--parameters={{"p": {P}}}'], [f"GOSGD: p {P}"]
    exchange, line = exchange_of(session.exch_strategy, [device for _, device in places])
    scheme = scheme_of(session.sync_type)
    options = ["-s", "0", "--allreduce", exchange.carrier]
    made = [f"--scheme={scheme}", f"--codec={exchange.codec}", f"--sync_type={session.sync_type}"]
    made += ['--parameters={"tau": 1}'] if session.sync_type == "avg" else []
    return options, made, [f"BSP: {session.sync_type} is --scheme {scheme}; {line}"]


def _hosts_file(places: Sequence[tuple[str, str]], folder: Path | None) -> Path:
    """Writes the hosts file of `paceline launch`; returns its path."""
    path = (folder or Path("runs")) / "theanompi-hosts"
    hosts = dict.fromkeys(host for host, _ in places)
    rows = []
    for host in hosts:
        devices = [device for name, device in places if name == host]
        gpus = [device.partition(":")[2] for device in devices if device != "cpu"]
        rows.append(f"{host or 'localhost'} slots={len(devices)}" + (f" gpus={','.join(gpus)}" if gpus else ""))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*rows, ""]), "utf-8")
    return path
