"""File systems of a process's own: full ones, and ones that turn read-only while it runs."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def mount_alone(folder: str, options: str) -> None:
    """This process, which has one thread, and its children see a tmpfs there that nobody else sees. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    _checked(libc.unshare(CLONE_NEWNS | (0 if user == 0 else CLONE_NEWUSER)))
    if user != 0:  # root there, and itself everywhere else
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    _checked(libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options.encode()))


def make_read_only(pid: int, folder: Path) -> None:
    """What process `pid` sees at `folder` cannot be written from now on; files that it has open can."""
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    for words in (["--bind", str(folder), str(folder)], ["-o", "remount,bind,ro", str(folder)]):
        subprocess.run(["nsenter", "-t", str(pid), "--mount", *user, "mount", *words], check=True, capture_output=True)


@functools.cache
def can_mount() -> bool:
    """May this user make mount namespaces here?"""
    if not sys.platform.startswith("linux") or shutil.which("nsenter") is None or shutil.which("mount") is None:
        return False
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", "--mount", *user, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
