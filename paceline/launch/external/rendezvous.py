"""Lets processes that somebody else starts find one another: by a secret on several hosts, by a folder on one.

on one host          the leader writes a ticket into a folder of this user alone; the others read it
on several hosts     all have the same token in a file; both sides derive the ticket from it
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import tempfile
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.launch.external.detect import ExternalProcess
from paceline.launch.local.environment import TOKEN_BYTES_MAX
from paceline.live.addresses import is_loopback
from paceline.runtime.run_folder.status_file import fields_of

TOKEN = "PACELINE_TOKEN_FILE"
"""The environment variable with the name of the file that holds the secret."""
TOKEN_CHARACTERS_MIN = 32
"""Characters below which a token could be guessed."""
HOW = "make one by `openssl rand -hex 32 > token; chmod 600 token`, copy it to every host, and set " + TOKEN
"""The way out, where there is no secret."""


def secret_of(external: ExternalProcess) -> str:
    """Returns the token that everybody has in a file; "" on one host, where none is needed. Raises ConfigError."""
    if not external.host or is_loopback(external.host):
        return ""
    return shared_secret(f"{external.host} is beyond this host, so the run needs a token")


def shared_secret(why: str) -> str:
    """Returns the content of the file that PACELINE_TOKEN_FILE names. Raises ConfigError, with `why` a token is needed.

    A file that others can read is refused.
    """
    path = os.environ.get(TOKEN)
    if not path:
        raise ConfigError(f"{why}: {HOW}")
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            # A Secret of Kubernetes is root's, for the group that the pod has to itself.
            if found.st_mode & (0o077 if found.st_uid == os.getuid() else 0o007):
                raise ConfigError(f"{TOKEN}={path} can be read by others: give it mode 0600")
            content = file.read(TOKEN_BYTES_MAX + 1) if stat.S_ISREG(found.st_mode) else b""
        text = content.decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{TOKEN}={path}: {getattr(error, 'strerror', None) or 'is no text'}; {HOW}") from None
    if len(content) > TOKEN_BYTES_MAX:
        raise ConfigError(f"{TOKEN}={path} has more than {TOKEN_BYTES_MAX} bytes: it is no token; {HOW}")
    if len(text) < TOKEN_CHARACTERS_MIN:
        raise ConfigError(f"{TOKEN}={path}: {len(text)} characters can be guessed; {HOW}")
    return text


def with_job(external: ExternalProcess) -> ExternalProcess:
    """Returns the process with a name of its job, which MPICH and Intel MPI do not tell: that of their proxy on this
    host.

    The proxy is the first ancestor that has no rank itself; a shell between them has one.
    """
    if external.starter != "mpich":
        return external
    proxy = os.getppid()
    with contextlib.suppress(OSError):  # another user's
        while b"PMI_RANK=" in Path(f"/proc/{proxy}/environ").read_bytes():
            proxy = int(fields_of(proxy)[1])
    return dataclasses.replace(external, job=f"{external.job}-{proxy}")


def ticket_of(external: ExternalProcess) -> Path:
    """Returns the path of the ticket, in a folder that nobody else can enter. Raises ConfigError."""
    folder = Path(tempfile.gettempdir(), f"paceline-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} is not a folder of yours alone: remove it, or set TMPDIR to one that is")
    name = "".join(sign if sign.isalnum() or sign in "._-" else "_" for sign in external.job)
    return folder / f"{name}.ticket"
