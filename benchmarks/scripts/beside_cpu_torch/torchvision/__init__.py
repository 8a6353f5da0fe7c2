"""Loads the torchvision of PyPI beside a torch without CUDA, whose compiled operators it cannot load.

Nothing of what the scripts use needs them: two are declared, since torchvision describes them while it is imported.
"""

import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parents[1]
DECLARED = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def _import_installed() -> None:
    """Imports torchvision anew, from elsewhere. The importer of this module then gives that one."""
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    import torchvision  # noqa: F401


sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
try:
    _import_installed()
except RuntimeError as error:  # operator torchvision::nms does not exist
    if "torchvision::" not in str(error):
        raise
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", DECLARED)
    _import_installed()
