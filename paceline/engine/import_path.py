"""What an import path names: a function or a class of the user's own.

    module:function     of a module on Python's path, or in the working directory
    file.py:function    of a file, found from the working directory; its folder is on the path, as for `python file.py`

Every process of a run resolves a path on its own host. Whoever runs the command names it, on the command line or in a
file of settings; a process never imports what a message of the run names.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

OTHER_NAMES_MAX = 5
"""Names that an error lists."""
_files: dict[Path, ModuleType] = {}
"""Files that were loaded in this process."""


def is_path(text: str) -> bool:
    """Returns True for `module:function` and `file.py:function`, whether or not they exist."""
    module, colon, name = text.rpartition(":")
    is_module = all(part.isidentifier() for part in module.split("."))
    return bool(colon) and name.isidentifier() and (is_module or module.endswith(".py"))


def of_module(path: str, begin: str, *, makes: str, example: str, hosts: str = "") -> Any:
    """Returns what `module:name` names. `begin` begins every error, and `example` ends one about the form.

    hosts: ends an error about a module that is not found. Raises ConfigError where it names nothing that can be called,
    or a part of Python, which has nothing that `makes` says.
    """
    module, _, name = path.partition(":")
    if not module or not name.isidentifier():
        raise ConfigError(f"{begin}: must be module:function, such as {example}")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(f"{begin}: {module} is part of Python, and makes no {makes}")
    try:
        loaded = imported(module)
    except ImportError as error:
        raise ConfigError(f"{begin} cannot be imported: {error}{hosts}") from None
    return _named(loaded, name, begin, module)


def own(path: str, what: str, *, makes: str) -> Any:
    """Returns the function or class that `path` names, of a module or of a file.

    `what` is the option that named it. Raises ConfigError, in one line, also for an error of the user's code.
    """
    module, _, name = path.rpartition(":")
    try:
        if module.endswith(".py"):
            return _named(_file(Path(module)), name, f"{what} {path}", module)
        hosts = "; name its file, such as my_code.py:make, or run the command in its folder"
        return of_module(path, f"{what} {path}", makes=makes, example=f"my_{makes}:make", hosts=hosts)
    except ConfigError:
        raise
    except FileNotFoundError as error:
        if error.filename != module:
            raise ConfigError(f"{what} {path}: {described(error)}") from error
        raise ConfigError(f"{what} {path}: no file {module} in {Path.cwd()}; give its path from there") from None
    except (Exception, SystemExit) as error:
        guard = '; put what trains under `if __name__ == "__main__":`' if isinstance(error, SystemExit) else ""
        raise ConfigError(f"{what} {path}: {described(error)}{guard}") from error


def call(target: Any, path: str, what: str) -> Any:
    """Returns what the user's function returns. Raises ConfigError where it needs arguments, or fails."""
    try:
        needs = [p.name for p in inspect.signature(target).parameters.values() if _is_needed(p)]
    except (TypeError, ValueError):  # of a class that is not written in Python
        needs = []
    if needs:
        name = path.rpartition(":")[2]
        raise ConfigError(
            f"{what} {path}: {name} needs arguments ({', '.join(needs)}), and is called without any: name a function "
            f"that takes none and returns {name}(...)"
        )
    try:
        return target()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what} {path}: {described(error)}") from error


def kind_of(value: Any) -> str:
    """Returns what `value` is, for an error: `nothing`, or its type and, where it has one, its length."""
    if value is None:
        return "nothing"
    length = f" of {len(value)}" if isinstance(value, tuple | list | dict) else ""
    return f"a {type(value).__name__}{length}"


def imported(name: str) -> ModuleType:
    """Returns a module on the path, or in the working directory, as a script that is run from there finds it.

    The working directory is appended only where the module is not found, so that no file there hides an installed one.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        if os.getcwd() in sys.path:
            raise
        sys.path.append(os.getcwd())
        return importlib.import_module(name)


def described(error: BaseException) -> str:
    """Returns an error of the user's code in one line: its kind, what it says, and the place of its origin."""
    frames = traceback.extract_tb(error.__traceback__)
    said = " ".join(str(error).split())
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if said else ''}{said}{place}"


def _file(path: Path) -> ModuleType:
    """Returns the module in a file, which is executed once in a process."""
    where = path.resolve()
    if where in _files:
        return _files[where]
    if not where.is_file():
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
    name = where.stem if where.stem.isidentifier() and not _is_taken(where.stem) else f"paceline_own_{len(_files)}"
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(where.parent) not in sys.path:
        sys.path.append(str(where.parent))
    sys.modules[name] = module  # dataclasses and pickling look it up by its name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _files[where] = module
    return module


def _is_taken(name: str) -> bool:
    """Returns True for a name that a module of that name would hide."""
    return name in sys.modules or name in sys.stdlib_module_names


def _named(module: ModuleType, name: str, begin: str, where: str) -> Any:
    """Returns a function or class of a module. Raises ConfigError with the name that comes nearest."""
    target = getattr(module, name, None)
    if callable(target):
        return target
    if target is not None:
        raise ConfigError(f"{begin}: {name} is a {type(target).__name__}, not a function or a class")
    others = [
        key for key, value in _public(vars(module)).items() if getattr(value, "__module__", "") == module.__name__
    ]
    hint = nearest(name, others) if len(others) <= OTHER_NAMES_MAX else nearest(name, others, listed=True)
    raise ConfigError(f"{begin}: {where} has no function {name}{hint}")


def _public(names: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what can be called of a module."""
    return {key: value for key, value in names.items() if callable(value) and not key.startswith("_")}


def _is_needed(parameter: inspect.Parameter) -> bool:
    """Returns True for a parameter without which a function cannot be called."""
    several = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and parameter.kind not in several
