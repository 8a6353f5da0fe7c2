"""Paceline trains one PyTorch model on machines that are not alike, under any published synchronisation scheme.

paceline.join(model, optimizer, scheme="esync")   a training loop of one's own becomes a worker, a Pace
paceline.train(scheme="esync", workers=4)         one call, one run on this machine; returns its Summary
paceline.load_digits()                            1,797 small pictures to try either with
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Pace", "Summary", "join", "load_digits", "train"]

if TYPE_CHECKING:
    from paceline.engine.data.digits import load_digits
    from paceline.launch.join import join
    from paceline.launch.local.train import train
    from paceline.observe.runs.summary import Summary
    from paceline.runtime.worker.pace import Pace
else:
    # Imported when first used, so that `import paceline` stays cheap and free of torch. Type checkers do not see this
    # function: to them any misspelt name would be there.
    _PLACES = {
        "Pace": "paceline.runtime.worker.pace",
        "Summary": "paceline.observe.runs.summary",
        "join": "paceline.launch.join",
        "load_digits": "paceline.engine.data.digits",
        "train": "paceline.launch.local.train",
    }

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module 'paceline' has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
