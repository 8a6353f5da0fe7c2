"""Builds published networks by name, for pictures of any size: most come from the library pytorchcv.

Read `fit.py` first: how a network of the paper's size is fitted to other pictures. Of `engine/` it may import
`models/`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType

from torch import nn

from paceline.core.errors import ConfigError
from paceline.engine.models.zoo.fit import fitted
from paceline.engine.models.zoo.googlenet import GoogLeNet

__all__ = ["NETWORKS", "Published", "build", "import_library"]

LIBRARY = "pytorchcv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Describes a network as published: where it is, the side of its pictures, its classes and parameters.

    made_by: module and function of the library; "" for one that is written here. parameters: as the authors, or the
    model tables of torchvision and Gluon, count them; without auxiliary classifiers.
    """

    made_by: str
    side: int
    classes: int
    parameters: int


NETWORKS = {
    "alexnet": Published(made_by="alexnet:alexnetb", side=224, classes=1000, parameters=61_100_840),
    "vgg16": Published(made_by="vgg:vgg16", side=224, classes=1000, parameters=138_357_544),
    "googlenet": Published(made_by="", side=224, classes=1000, parameters=6_998_552),
    "inception-bn": Published(made_by="bninception:bninception", side=224, classes=1000, parameters=11_295_240),
    "inception-v3": Published(made_by="inceptionv3:inceptionv3", side=299, classes=1000, parameters=23_834_568),
    "resnet18": Published(made_by="resnet:resnet18", side=224, classes=1000, parameters=11_689_512),
    "resnet50": Published(made_by="resnet:resnet50", side=224, classes=1000, parameters=25_557_032),
    "resnet18-v2": Published(made_by="preresnet:preresnet18", side=224, classes=1000, parameters=11_687_848),
    "resnet50-v2": Published(made_by="preresnet:preresnet50", side=224, classes=1000, parameters=25_549_480),
    "wide-resnet": Published(made_by="wrn_cifar:wrn28_10_cifar10", side=32, classes=10, parameters=36_479_194),
    "mobilenet": Published(made_by="mobilenet:mobilenet_w1", side=224, classes=1000, parameters=4_231_976),
    "mobilenet-v2": Published(made_by="mobilenetv2:mobilenetv2b_w1", side=224, classes=1000, parameters=3_503_872),
}


def build(name: str, shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns the network `name` of NETWORKS for pictures of `shape` ([c, h, w]); channels and hidden units times
    `width`.

    Raises ConfigError without the library, and for pictures that are too small.
    """
    published = NETWORKS[name]
    return fitted(name, lambda: made(name, published), published.side, shape, classes, width)


def made(name: str, published: Published) -> nn.Module:
    if not published.made_by:
        return GoogLeNet()
    function = published.made_by.partition(":")[2]
    made: nn.Module = getattr(import_library(name), function)()
    return made


def import_library(name: str) -> ModuleType | None:
    """Returns the library's module with network `name`; None if it needs none. Raises ConfigError if it is missing."""
    if not NETWORKS[name].made_by:
        return None
    module = NETWORKS[name].made_by.partition(":")[0]
    try:
        # That module alone: the library's own list of all models needs torchvision.
        return importlib.import_module(f"{LIBRARY}.models.{module}")
    except ModuleNotFoundError:
        raise ConfigError(
            f"model {name} is in the library {LIBRARY}, which is not installed: pip install 'paceline[zoo]'; or, to "
            f"leave torch as it is, pip install --no-deps {LIBRARY}"
        ) from None
