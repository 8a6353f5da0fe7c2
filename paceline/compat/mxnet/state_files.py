"""Saves and loads the states of a store's optimizer: safetensors, whole keys, whatever servers they were on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from paceline.core.errors import ConfigError
from paceline.runtime.kvstore.optimizers import Updater
from paceline.runtime.kvstore.placement import Key, text_of

_WHAT = "paceline.kvstore"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStates:
    """Holds the states of one key: plain numbers, tensors of no dimension, and all others, as long
    as the key's value.
    """

    numbers: dict[str, float]
    single: dict[str, float]
    tensors: dict[str, Tensor]


class _Numbers(msgspec.Struct):
    """The file's head has one of these for each key: its numbers, and the names of its tensors."""

    numbers: dict[str, float]
    single: dict[str, float]
    names: list[str]


class _Head(msgspec.Struct):
    """The file's metadata as JSON: which optimizer it is of, and what it has of each key."""

    updater: Updater
    keys: dict[str, _Numbers]


def save_states(path: Path, updater: Updater, states: Mapping[Key, KeyStates]) -> None:
    """Writes the file. Raises ConfigError where it cannot be written."""
    tensors = {f"{text_of(key)}/{name}": v for key, one in states.items() for name, v in one.tensors.items()}
    keys = {text_of(key): _Numbers(one.numbers, one.single, list(one.tensors)) for key, one in states.items()}
    head = msgspec.json.encode(_Head(updater, keys)).decode()
    try:
        save_file({name: v.contiguous() for name, v in tensors.items()}, path, metadata={_WHAT: head})
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot write {path}: {error}") from None


def load_states(path: Path, updater: Updater, keys: Sequence[Key]) -> dict[Key, KeyStates]:
    """Reads the file. Raises ConfigError where it cannot be read, or is of another optimizer or of other keys."""
    try:
        with safe_open(path, "pt") as file:
            head = msgspec.json.decode((file.metadata() or {})[_WHAT], type=_Head)
            _check(path, head, updater, keys)
            return {key: _of(head.keys[text_of(key)], text_of(key), file) for key in keys}
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    except (KeyError, msgspec.DecodeError):
        raise ConfigError(f"{path} is no file of optimizer states: save_optimizer_states writes one") from None


def _of(said: _Numbers, key: str, file: safe_open) -> KeyStates:
    tensors = {name: file.get_tensor(f"{key}/{name}") for name in said.names}  # type: ignore[no-untyped-call]
    return KeyStates(numbers=said.numbers, single=said.single, tensors=tensors)


def _check(path: Path, head: _Head, updater: Updater, keys: Sequence[Key]) -> None:
    """Raises ConfigError where the file is of another optimizer or of other keys."""
    if head.updater.name != updater.name:
        raise ConfigError(f"{path} has states of {head.updater.name}: call set_optimizer with that, not {updater.name}")
    odd = set(head.keys) ^ {text_of(key) for key in keys}
    if odd:
        raise ConfigError(f"{path} has other keys than this store: {', '.join(sorted(odd)[:5])}: init the same ones")
