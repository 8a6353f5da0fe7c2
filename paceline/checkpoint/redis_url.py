"""Where a store is: `redis://host:port/db/RUN`, the last three optional; `?tls` for TLS; never a password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

SCHEMES = ("redis://", "rediss://")
PORT = 6379
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
PASSWORD = "PACELINE_REDIS_PASSWORD"
WAY = f"put it into the environment, as {PASSWORD}, or its file's name as {PASSWORD}_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`run`: nothing where the URL names none."""

    host: str
    port: int = PORT
    db: int = 0
    run: str = ""
    user: str = ""
    tls: bool = False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError, which never quotes a password."""
        if not is_store(text):
            raise ValueError("what does not begin with redis:// is no store: give redis://host:port/db")
        try:
            url = urlsplit(text)
            port = url.port or PORT
        except ValueError:
            raise ValueError("the address of a store is redis://host:port/db, with a port up to 65535") from None
        if url.password is not None:
            raise ValueError(f"a password in an address is seen in lists of processes and in config.toml: {WAY}")
        db, run = _path(url)
        if not url.hostname or url.fragment or url.query not in ("", "tls"):
            raise ValueError(f"{text!r} is no store: give redis://host:port/db, with ?tls at its end for TLS")
        tls = url.scheme == "rediss" or url.query == "tls"
        return cls(host=url.hostname, port=port, db=db, run=run, user=url.username or "", tls=tls)

    def __str__(self) -> str:
        user, host = f"{self.user}@" if self.user else "", f"[{self.host}]" if ":" in self.host else self.host
        run, tls = f"/{self.run}" if self.run else "", "?tls" if self.tls else ""
        return f"redis://{user}{host}:{self.port}/{self.db}{run}{tls}"


def is_store(text: str) -> bool:
    return text.lower().startswith(SCHEMES)


def _path(url: SplitResult) -> tuple[int, str]:
    db, _, run = url.path.strip("/").partition("/")
    if not re.fullmatch(r"\d{0,5}", db):
        raise ValueError(f"{db!r} is no number of a database: give redis://host:port/0, or redis://host:port/0/RUN")
    if run and not RUN.fullmatch(run):
        raise ValueError(f"{run!r} is no name of a run: letters, digits, '.', '_' and '-' make one")
    return int(db or 0), run
