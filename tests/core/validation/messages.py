"""Every message that there is, and which the coordinator alone may send."""

from __future__ import annotations

import importlib
import pkgutil

import paceline
from paceline.core.message import _types


def all_messages() -> list[type]:
    for module in pkgutil.walk_packages(paceline.__path__, "paceline."):
        if module.name.startswith(("paceline.core", "paceline.schemes", "paceline.live", "paceline.runtime.kvstore")):
            importlib.import_module(module.name)
    return [cls for cls in _types.values() if cls.__module__.startswith("paceline.")]


def of_the_coordinator(cls: type) -> bool:
    from paceline.live.control import permissions

    return cls in permissions.CONTROL and permissions.CONTROL[cls][0] == {"coordinator"}
