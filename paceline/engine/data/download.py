"""Fetches public files once, checks them, and puts them into place whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.engine.data.partial_file import part_of

CACHE = Path("~/.cache/paceline")
TIMEOUT_S = 30.0
BYTES_MAX = 64 << 20
_CHUNK = 1 << 18


def fetch(folder: Path, mirrors: Sequence[str], md5s: Mapping[str, str]) -> Path:
    """Returns `folder`, holding every file of `md5s` (name -> checksum). Files that are there and right are not fetched
    again.

    Raises ConfigError when no mirror gives a file with the right checksum, or `folder` cannot be written.
    """
    folder = folder.expanduser()
    for name, md5 in md5s.items():
        if _md5(folder / name) == md5:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write to {folder} ({error}); give --data-dir") from None
        _fetch_one(folder / name, mirrors, md5)
    return folder


def _fetch_one(path: Path, mirrors: Sequence[str], md5: str) -> None:
    from http.client import HTTPException  # here, as few runs fetch anything

    refusals = []
    for mirror in mirrors:
        try:
            _download(mirror + path.name, path, md5)
            return
        except (OSError, HTTPException, ValueError) as error:  # URLError is an OSError
            refusals.append(f"{mirror}: {error}")
    raise ConfigError(
        f"cannot download {path.name} ({'; '.join(refusals)}); give --data-dir, a folder that holds the files"
    )


def _download(url: str, path: Path, md5: str) -> None:
    """Downloads a file, checks it and renames it to `path`. If several processes do so, the last rename wins."""
    import urllib.request

    with part_of(path) as (out, part):
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as source:
            # A server may claim any length, so what is read is counted.
            length = 0
            while chunk := source.read(_CHUNK):
                length += len(chunk)
                if length > BYTES_MAX:
                    raise ValueError(f"longer than {BYTES_MAX} bytes")
                out.write(chunk)
        out.flush()
        found = _md5(part)
        if found != md5:
            raise ValueError(f"md5 {found} instead of {md5}")
        os.replace(part, path)


def _md5(path: Path) -> str | None:
    """Returns the checksum; None when there is no such file or it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError:
        return None
