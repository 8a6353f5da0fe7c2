"""Reads the address of a store: `redis://host:port/db/RUN`, the last three optional; `?tls` for TLS; never a password.

Beyond this machine a store is reached under TLS, unless the address ends with `?plain`, and checkpoints are signed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from paceline.core.errors import ConfigError

SCHEMES = ("redis://", "rediss://")
PORT = 6379
"""The port of Redis, where the address names none."""
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Names of runs: they become parts of keys, whose parts are separated by colons."""
PASSWORD = "PACELINE_REDIS_PASSWORD"
"""The environment variable with the server's password; with `_FILE` behind it, the name of a file that has it."""
KEY = "PACELINE_CHECKPOINT_KEY"
"""The environment variable with the key that signs checkpoints; likewise with `_FILE`."""
KEY_BYTES_MIN = 16
"""Characters of a key, at least: shorter ones can be guessed."""
WAY = f"put it into the environment, as {PASSWORD}, or its file's name as {PASSWORD}_FILE"
"""What an error says about a password in the wrong place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Names a Redis server, and a run in it; `run` is "" where the URL names none."""

    host: str
    port: int = PORT
    db: int = 0
    run: str = ""
    user: str = ""
    tls: bool = False
    plain: bool = False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads an address. Raises ValueError, which never quotes a password."""
        if not is_store(text):
            raise ValueError("the address of a store begins with redis://: give redis://host:port/db")
        try:
            url = urlsplit(text)
            port = url.port or PORT
        except ValueError:
            raise ValueError("the address of a store is redis://host:port/db, with a port up to 65535") from None
        # Checked before anything that quotes the address in an error.
        if url.password is not None:
            raise ValueError(f"a password in an address is seen in lists of processes and in config.toml: {WAY}")
        db, run = _path(url)
        if not url.hostname or url.fragment or url.query not in ("", "tls", "plain"):
            raise ValueError(
                "the address of a store is redis://host:port/db, with nothing behind it but ?tls or ?plain; "
                f"as for a password, {WAY}"
            )
        tls, plain = url.scheme == "rediss" or url.query == "tls", url.query == "plain"
        # Without TLS the network between could read the password and replace the weights.
        found = cls(host=url.hostname, port=port, db=db, run=run, user=url.username or "", tls=tls, plain=plain)
        if not (tls or plain or found.is_here):
            raise ValueError(
                f"{found} is on another machine, and others on the network could read and change checkpoints: put ?tls "
                "at its end, or ?plain where the network is trusted"
            )
        return found

    @property
    def is_here(self) -> bool:
        """Returns True if it is this machine, by a loopback address. A name other than localhost may be anywhere."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        user, host = f"{self.user}@" if self.user else "", f"[{self.host}]" if ":" in self.host else self.host
        run, way = f"/{self.run}" if self.run else "", "?tls" if self.tls else "?plain" if self.plain else ""
        return f"redis://{user}{host}:{self.port}/{self.db}{run}{way}"


@dataclass(frozen=True, slots=True)
class StoreSecrets:
    """Holds what the address of a store does not say: the server's password, and the key that signs
    checkpoints there.
    """

    password: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> StoreSecrets:
        """Reads them from the variables, or from the files that they name. Raises ConfigError."""
        password, key = _secret(environment, PASSWORD), _secret(environment, KEY)
        if key and len(key) < KEY_BYTES_MIN:
            raise ConfigError(f"{KEY}: shorter than {KEY_BYTES_MIN} characters: make one by `openssl rand -hex 32`")
        return cls(password, key)


NO_SECRETS = StoreSecrets()


def _secret(environment: Mapping[str, str], name: str) -> str:
    """Returns the value of a variable, or the content of the file that `NAME_FILE` names. Raises ConfigError."""
    path = environment.get(f"{name}_FILE", "")
    try:
        return Path(path).read_text(encoding="utf-8").strip() if path else environment.get(name, "")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}_FILE: {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None


def is_store(text: str) -> bool:
    """Returns True if `text` is the address of a store, by how it begins."""
    return text.lower().startswith(SCHEMES)


def _path(url: SplitResult) -> tuple[int, str]:
    """Returns the number of the database and the name of the run in the path of an address. Raises ValueError."""
    db, _, run = url.path.strip("/").partition("/")
    if not re.fullmatch(r"\d{0,5}", db):
        raise ValueError(
            f"{db!r} is not the number of a database: give redis://host:port/0, or redis://host:port/0/RUN"
        )
    if run and not RUN.fullmatch(run):
        raise ValueError(f"{run!r} is not the name of a run: give letters, digits, '.', '_' and '-'")
    return int(db or 0), run
