"""Paceline trains one PyTorch model on machines that are not alike, under any published synchronisation scheme.

paceline.join(model, optimizer, scheme="esync")   a training loop of one's own becomes a worker
paceline.train(scheme="esync", workers=4)         one call, one run on this machine
paceline.load_digits()                            1,797 small pictures to try either with
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["join", "load_digits", "train"]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def __getattr__(name: str) -> Any:
    # Imported when first used, so that `import paceline` stays cheap and free of torch.
    if name == "join":
        from paceline.launch.join import join

        return join
    if name == "load_digits":
        from paceline.engine.data.digits import load_digits

        return load_digits
    if name == "train":
        from paceline.launch.local.train import train

        return train
    raise AttributeError(f"module 'paceline' has no attribute {name!r}")
