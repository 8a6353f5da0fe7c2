"""Copies files from elsewhere, by fsspec: hdfs://, webhdfs://, s3://, https://, file://, memory:// and all it knows.

    folder = mirrored("s3://bucket/mnist", ("train-images-idx3-ubyte", ...))

A file is copied once into a folder of the cache. A note beside it holds its length, what the store says of its state
(an ETag, a time of change) and its SHA-256. It is fetched again when the store says otherwise or the copy is damaged,
and put into place whole or not at all.

fsspec's clients keep threads, and the process that loads data is forked afterwards; so a process of its own fetches.
`memory://` is of the caller's process, which fetches itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from paceline.core.errors import ConfigError
from paceline.core.files.helper_command import helper_command
from paceline.engine.data.download import BYTES_MAX, CACHE
from paceline.engine.data.partial_file import part_of

TIMEOUT_S = 600.0
MARKS = ("ETag", "etag", "md5Hash", "LastModified", "modificationTime", "mtime")
"""The names under which clients give a file's state; the first that is there counts."""
CHUNK = 1 << 18
SECRET = re.compile(
    r"token|secret|passw|signature|credential|delegation|authori[sz]ation|api.?key|access.?key"
    r"|(^|[^a-z])(auth|code|jwt|key|pass|pwd|sas|sig)([^a-z]|$)",
    re.IGNORECASE,
)
"""Matches the names of parameters of an address that hold credentials."""


def is_remote(directory: str) -> bool:
    return "://" in directory


def check_no_credentials(address: str) -> None:
    """Raises ConfigError, which does not quote it, for an address with a password, a key or a token in it.

    Arguments and `config.toml` are read by others. fsspec's clients find credentials elsewhere.
    """
    try:
        secret = any(_has_credentials(part) for part in address.split("::"))  # as in simplecache::https://...
    except ValueError:
        raise ConfigError("--data-dir: no address: give one such as s3://bucket/folder, or a folder") from None
    if secret:
        raise ConfigError(
            f"--data-dir {address.partition('://')[0]}://...: credentials in an address are seen in lists of "
            "processes and in config.toml: put them where its client looks, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, ~/.netrc, or a file in ~/.config/fsspec"
        )


def _has_credentials(address: str) -> bool:
    """Returns True for a password, a name in place of a token, or a parameter that is called like a secret.

    Raises ValueError for what is no address.
    """
    url = urlsplit(address)
    token = url.username is not None and url.scheme.lower() in ("http", "https")  # as https://TOKEN@host
    names = [pair.partition("=")[0] for part in (url.query, url.fragment) for pair in re.split("[&;]", part)]
    return url.password is not None or token or any(SECRET.search(unquote(name)) for name in names)


def mirrored(address: str, names: Sequence[str], cache: Path = CACHE) -> Path:
    """Returns the folder with a copy of each file `names`, or of the one with .gz behind its name.

    The copies come from the folder `address`. Raises ConfigError, in one line, when a file is not there, is longer than
    64 MiB or cannot be had.
    """
    folder = cache.expanduser() / "remote" / hashlib.sha256(address.encode()).hexdigest()[:16]
    if address.startswith("memory://"):
        fetch_all(address, names, folder)
        return folder
    command = helper_command(__name__, address, str(folder), *names)
    # The child reads the other end of this pipe: when this process ends, however it ends, the read returns and the
    # child ends itself.
    tells_of_our_end, ours = os.pipe()
    try:
        done = subprocess.run(
            command, stdin=tells_of_our_end, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"--data-dir {address}: no answer within {TIMEOUT_S:.0f} s; is it reachable?") from None
    finally:
        os.close(tells_of_our_end)
        os.close(ours)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ConfigError(said[-1])
    return folder


def fetch_all(address: str, names: Sequence[str], folder: Path) -> None:
    """Copies the files into `folder`, as `mirrored` does, in this process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder} ({error.strerror}); give --data-dir a folder") from None
    try:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(address)
        for name in names:
            path, info = _found(files, root.rstrip("/"), name)
            _fetch(files, path, info, folder / path.rpartition("/")[2])
    except ImportError as error:  # fsspec itself, or its client for that address
        raise ConfigError(
            f"--data-dir {address}: {_line(error)}; pip install 'paceline[remote]' has s3, https and webhdfs, "
            "hdfs:// needs pyarrow and Hadoop"
        ) from None
    except ConfigError:
        raise
    except FileNotFoundError as error:
        raise ConfigError(f"--data-dir {address} holds neither {error.args[0]} nor {error.args[0]}.gz") from None
    except ValueError as error:  # fsspec knows no such address
        raise ConfigError(f"--data-dir {address}: {_line(error)}; such as s3://bucket/folder, or a folder") from None
    except Exception as error:  # each client has its own
        raise ConfigError(f"--data-dir {address}: {type(error).__name__}: {_line(error)}; is it reachable?") from None


def _found(files: Any, root: str, name: str) -> tuple[str, Mapping[str, Any]]:
    """Returns path and description of the file. Raises FileNotFoundError, with `name`."""
    for path in (f"{root}/{name}", f"{root}/{name}.gz"):
        with contextlib.suppress(FileNotFoundError):
            return path, files.info(path)
    raise FileNotFoundError(name)


def _fetch(files: Any, path: str, info: Mapping[str, Any], copy: Path) -> None:
    """Copies one file, unless the copy that is there is right by the store's description and its own checksum."""
    note = copy.with_name(f"{copy.name}.json")
    state = {"size": info.get("size"), "mark": next((str(info[mark]) for mark in MARKS if info.get(mark)), "")}
    if _noted(note) == state | {"sha256": _sha256(copy)}:
        return
    with part_of(copy) as (out, part):
        length = 0
        with files.open(path, "rb") as source:
            while chunk := source.read(CHUNK):
                length += len(chunk)
                if length > BYTES_MAX:
                    raise ConfigError(f"{path} is longer than {BYTES_MAX} bytes")
                out.write(chunk)
        if state["size"] not in (None, length):
            raise ConfigError(f"{path} has {state['size']} bytes, and {length} came: try again")
        out.flush()
        digest = _sha256(part)
        os.replace(part, copy)
    note.write_text(json.dumps(state | {"sha256": digest}), encoding="utf-8")


def _noted(note: Path) -> Any:
    try:
        return json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _sha256(path: Path) -> str:
    """Returns the checksum; "" for a file that is not there."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")[:300] or "no reason given"


def _end_with_the_caller() -> None:
    """Ends this process when its caller has ended: then nobody holds the other end of its standard input any more."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    try:
        fetch_all(sys.argv[1], sys.argv[3:], Path(sys.argv[2]))
    except ConfigError as problem:
        sys.exit(str(problem))
