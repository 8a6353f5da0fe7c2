"""Cluster files: TOML whose tables are the classes of `paceline.sim.cluster.model`, and the ready examples."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.sim.cluster.model import Cluster

T = TypeVar("T")


def examples() -> list[str]:
    """Returns the names of the ready clusters, sorted."""
    folder = resources.files("paceline.sim.cluster") / "examples"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def load(path_or_name: str | Path) -> Cluster:
    """Returns the cluster of a file, or the ready one of that name. Raises ConfigError, in one line, for what is
    wrong."""
    path = Path(path_or_name)
    if path.suffix == ".toml" or path.is_file():
        try:
            text = path.read_text()
        except OSError as error:
            raise ConfigError(f"cannot read the cluster file {path}: {error.strerror}") from None
        return parse(text, str(path), path.stem)
    name = str(path_or_name)
    if name not in examples():
        raise ConfigError(f"no cluster file and no ready cluster is called {name!r}{nearest(name, examples())}")
    text = (resources.files("paceline.sim.cluster") / "examples" / f"{name}.toml").read_text()
    return parse(text, name, name)


def parse(text: str, where: str = "cluster", name: str = "") -> Cluster:
    """Returns the cluster that `text` describes. Raises ConfigError, whose text begins with `where`."""
    try:
        table = tomllib.loads(text)
        return _record(Cluster, {"name": name, **table}, "")
    except (tomllib.TOMLDecodeError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}") from None


def text_of(cluster: Cluster) -> str:
    """Returns the TOML text that `parse` reads this cluster from; what has its default is left out."""
    return "\n".join(_lines(cluster, "", is_list=False)).strip() + "\n"


def table_text(record: Any, label: str, *, is_list: bool = False) -> str:
    """Returns a cluster, or another record, as the table `label` of a larger file; `record_of` reads it.

    is_list: it is one of several tables with that label.
    """
    return "\n".join(_lines(record, label, is_list=is_list)).strip() + "\n"


def cluster_of(table: Any, label: str) -> Cluster:
    """Returns the cluster that the parsed table `label` describes. Raises ConfigError."""
    return _record(Cluster, table, label)


def record_of(cls: type[T], table: Any, label: str) -> T:
    """Returns the record of class `cls` that the parsed table `label` describes. Raises ConfigError."""
    return _record(cls, table, label)


def _lines(record: Any, label: str, *, is_list: bool) -> Iterator[str]:
    """Yields the lines of one table and of the tables within it: plain values first, as TOML wants."""
    if label:
        yield ""
        yield f"[[{label}]]" if is_list else f"[{label}]"
    tables: list[tuple[str, Any]] = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if value == default or (not label and field.name == "name"):  # which is that of the file
            continue
        if dataclasses.is_dataclass(value) or (isinstance(value, tuple) and dataclasses.is_dataclass(value[0])):
            tables.append((_join(label, field.name), value))
        else:
            yield f"{field.name} = {json.dumps(value)}"
    for name, value in tables:
        for one in value if isinstance(value, tuple) else (value,):
            yield from _lines(one, name, is_list=isinstance(value, tuple))


def _record(cls: type[T], table: Any, label: str) -> T:
    """Makes a record of class `cls` from a TOML table. Raises ConfigError for an unknown or a missing key, with a
    suggestion."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{label} must be a table")
    hints = get_type_hints(cls)
    for key in table:
        if key not in hints:
            raise ConfigError(f"unknown key {_join(label, key)}{nearest(key, hints)}")
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    absent = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING and f.name not in table]
    if absent:
        raise ConfigError(f"{label or 'a cluster'} needs {', '.join(absent)}")
    return cls(**{key: _value(hints[key], value, _join(label, key)) for key, value in table.items()})


def _value(wanted: Any, value: Any, label: str) -> Any:
    """Returns `value` as the field of type `wanted` has it: lists as tuples, tables as records, whole numbers as
    floats.

    Raises ConfigError for any other type. `nan` and `inf`, which TOML knows, are refused too: they would pass the
    range checks of the classes or never come.
    """
    if isinstance(wanted, types.UnionType):  # a table that may be absent
        wanted = next(kind for kind in get_args(wanted) if kind is not type(None))
    if get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{label} must be a list")
        return tuple(_value(get_args(wanted)[0], item, label) for item in value)
    if dataclasses.is_dataclass(wanted):
        return _record(wanted, value, label)  # type: ignore[arg-type]
    if wanted is float and type(value) is int:
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{label} = {value}: must be a finite number; what never comes is left out")
    if type(value) is not wanted:
        raise ConfigError(f"{label} = {value!r}: must be {wanted.__name__}, not {type(value).__name__}")
    return value


def _join(label: str, key: str) -> str:
    """Returns the name of a key as errors show it: `network.latency_s`."""
    return f"{label}.{key}" if label else key
