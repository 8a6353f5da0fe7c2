"""Converts Theano-MPI's `inforec.pkl` into arrays without pickle, as `recorder.py` writes them.

    python -m paceline.compat.theanompi.record_converter inforec/inforec.pkl inforec

A pickle is a program, and loading one runs it. Here its instructions are read one by one, and only those that make
numbers, texts, lists, tuples, dicts and arrays of numbers are followed. Every other one is refused by name, and nothing
is imported or called.
"""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paceline.compat.theanompi.recorder import WIDTHS
from paceline.core.errors import ConfigError

SIZE_MAX = 256 * 2**20
"""Bytes of a pickle that is read at all."""
KNOWN = {
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
"""What a pickle of arrays names: module and function."""
OLD_TIME = 5
"""Columns of `all_time` in records from before 2017, which have no `sync`."""


class _Name:
    """A name that the pickle would import; only those of arrays are known."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Array:
    """An array that is being made; `BUILD` gives it shape, type and contents."""

    value: np.ndarray | None = None


class _Mark:
    """Where the items of a list or dict begin."""


MARK = _Mark()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
PLAIN = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES",
    "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
"""Instructions that push their own argument."""
IGNORED = {"PROTO", "FRAME", "STOP"}


class PickleReader:
    """Follows the instructions of one pickle on a stack of plain values."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, data: bytes) -> Any:
        """Returns the value. Raises ConfigError for an instruction that makes something else."""
        for instruction, argument, at in pickletools.genops(data):
            name = instruction.name
            try:
                self._follow(name, argument)
            except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
                raise ConfigError(f"byte {at}: {name} does not fit what was read before ({error})") from None
        if len(self._stack) != 1:
            raise ConfigError("the pickle ends in the middle")
        return _plain(self._stack[0])

    def _follow(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in IGNORED:
            return
        if name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in PLAIN:
            stack.append(argument)
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self._memo[len(self._memo) if name == "MEMOIZE" else int(argument)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memo[int(argument)])
        elif name in ACTIONS:
            ACTIONS[name](self, argument)
        else:
            raise ConfigError(f"the pickle has the instruction {name}, which makes more than numbers and arrays")

    # ---- containers --------------------------------------------------------------------------------------
    def _mark(self, _: Any) -> None:
        self._stack.append(MARK)

    def _since_mark(self) -> list[Any]:
        at = len(self._stack) - 1 - self._stack[::-1].index(MARK)
        items, self._stack[at:] = self._stack[at + 1 :], []
        return items

    def _append(self, _: Any) -> None:
        value = self._stack.pop()
        self._stack[-1].append(value)

    def _appends(self, _: Any) -> None:
        items = self._since_mark()
        self._stack[-1].extend(items)

    def _set_item(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._stack[-1][key] = value

    def _set_items(self, _: Any) -> None:
        items = self._since_mark()
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _list(self, _: Any) -> None:
        self._stack.append(self._since_mark())

    def _dict(self, _: Any) -> None:
        items = self._since_mark()
        self._stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._since_mark()))

    def _last(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        self._stack[-count:] = [items]

    # ---- arrays ------------------------------------------------------------------------------------------
    def _global(self, argument: Any) -> None:
        module, name = argument.split(" ", 1) if argument else (self._stack.pop(-2), self._stack.pop())
        if (module, name) not in KNOWN:
            raise ConfigError(f"the pickle imports {module}.{name}; only arrays of numbers are read")
        self._stack.append(_Name(module, name))

    def _reduce(self, _: Any) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        match name.name:
            case "_reconstruct":
                self._stack.append(_Array())
            case "_frombuffer":
                made, (content, dtype, shape, order) = _Array(), arguments
                made.value = np.frombuffer(content, dtype).reshape(shape, order=order)
                self._stack.append(made)
            case "dtype":
                self._stack.append(_numbers(arguments[0]))
            case "encode":
                self._stack.append(arguments[0].encode("latin-1"))
            case "scalar":
                self._stack.append(np.frombuffer(_bytes(arguments[1]), arguments[0], 1)[0].item())
            case _:
                raise ConfigError(f"the pickle calls {name.module}.{name.name}; only arrays of numbers are read")

    def _build(self, _: Any) -> None:
        state, made = self._stack.pop(), self._stack[-1]
        if isinstance(made, np.dtype):
            if state[1] in ("<", ">"):
                self._replace(made, made.newbyteorder(state[1]))
            return
        _, shape, dtype, by_columns, content = state
        array = np.frombuffer(_bytes(content), dtype).reshape(shape, order="F" if by_columns else "C")
        made.value = array

    def _replace(self, old: Any, new: Any) -> None:
        self._stack[-1] = new
        self._memo = {key: new if value is old else value for key, value in self._memo.items()}


ACTIONS: dict[str, Callable[[PickleReader, Any], None]] = {
    "MARK": PickleReader._mark,
    "APPEND": PickleReader._append,
    "APPENDS": PickleReader._appends,
    "SETITEM": PickleReader._set_item,
    "SETITEMS": PickleReader._set_items,
    "LIST": PickleReader._list,
    "DICT": PickleReader._dict,
    "TUPLE": PickleReader._tuple,
    "TUPLE1": lambda reader, _: reader._last(1),
    "TUPLE2": lambda reader, _: reader._last(2),
    "TUPLE3": lambda reader, _: reader._last(3),
    "GLOBAL": PickleReader._global,
    "STACK_GLOBAL": PickleReader._global,
    "REDUCE": PickleReader._reduce,
    "BUILD": PickleReader._build,
}


def _numbers(text: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in "biuf":
        raise ConfigError(f"the pickle has an array of {text}; only numbers are read")
    return dtype


def _bytes(content: Any) -> bytes:
    return content.encode("latin-1") if isinstance(content, str) else bytes(content)


def _plain(value: Any) -> Any:
    """Returns the value with its arrays as lists."""
    if isinstance(value, _Array):
        return value.value.tolist() if value.value is not None else []
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def convert(source: Path, folder: Path) -> list[str]:
    """Writes the arrays of a record into `folder`; returns their names. Raises ConfigError or OSError."""
    if source.stat().st_size > SIZE_MAX:
        raise ConfigError(f"{source}: larger than {SIZE_MAX // 2**20} MiB, and no record")
    try:
        found = PickleReader().read(source.read_bytes())
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except (ValueError, IndexError) as error:  # of pickletools: no pickle, or one that ends too soon
        raise ConfigError(f"{source}: no pickle ({error})") from None
    if not isinstance(found, dict) or not set(WIDTHS) & set(found):
        raise ConfigError(f"{source}: no record of Theano-MPI, which has {', '.join(WIDTHS)}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, width in WIDTHS.items():
        np.save(folder / f"{name}.npy", _rows(found.get(name, []), name, width))
    return sorted(set(WIDTHS) & set(found))


def _rows(rows: Any, name: str, width: int) -> np.ndarray:
    """Returns float64 [n, width]. Old times have no `sync`, which becomes 0. Raises ConfigError for other rows."""
    if not len(rows):
        return np.zeros((0, width))
    try:
        array = np.array(rows, np.float64).reshape(len(rows), -1)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: not rows of {width} numbers") from None
    if name == "all_time" and array.shape[1] == OLD_TIME:
        array = np.insert(array, 3, 0.0, axis=1)
    if array.shape[1] != width:
        raise ConfigError(f"{name}: rows of {array.shape[1]} numbers, not of {width}")
    return array


def main(words: Sequence[str]) -> int:
    """Converts one file; returns the exit code."""
    if len(words) != 2:
        print("usage: python -m paceline.compat.theanompi.record_converter inforec.pkl FOLDER", file=sys.stderr)
        return 2
    try:
        names = convert(Path(words[0]), Path(words[1]))
    except (ConfigError, OSError) as error:
        print(f"paceline: {error}", file=sys.stderr)
        return 1
    print(f"{', '.join(names)} in {words[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
