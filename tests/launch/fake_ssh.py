"""An ssh that logs in to this machine, for tests that need no sshd."""

from __future__ import annotations

from pathlib import Path

SSH = """#!/bin/sh
# The last word is the command; the environment is as bare as a login's.
for last; do :; done
exec env -i HOME="$HOME" PATH=/usr/local/bin:/usr/bin:/bin SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" sh -c "$last"
"""


def put_ssh(folder: Path) -> Path:
    """A folder for the head of PATH."""
    path = folder / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text(SSH)
    path.chmod(0o755)
    return path.parent
