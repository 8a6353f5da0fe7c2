"""Whose a file or a folder is: what steers a program counts only where nobody else could have written it."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_own(told: os.stat_result) -> bool:
    """Returns True for what this user owns and nobody else may write; everything is, on systems without users.

    A group that has the user's own number counts as the user: where each user has one, files are writable by it.
    """
    if not hasattr(os, "geteuid"):
        return True
    others = stat.S_IWOTH if told.st_gid == told.st_uid else stat.S_IWOTH | stat.S_IWGRP
    return told.st_uid == os.geteuid() and not told.st_mode & others


def steers(file: Path) -> bool:
    """Returns True if `file` is a plain file of this user's in a folder of this user's; links are followed nowhere."""
    try:
        told, folder = file.lstat(), file.parent.stat()
    except OSError:
        return False
    return stat.S_ISREG(told.st_mode) and is_own(told) and is_own(folder)
