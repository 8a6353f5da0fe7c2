"""Finds the network of MXNet's `--network` and `--num-layers` among those that `--model` takes.

Depths that Paceline has no name for come from the library pytorchcv, by import path, in the size of their paper.
"""

from __future__ import annotations

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

NAMED = {
    "mlp": "mlp",
    "lenet": "lenet",
    "alexnet": "alexnet",
    "googlenet": "googlenet",
    "inception-bn": "inception-bn",
    "inception-v3": "inception-v3",
    "mobilenet": "mobilenet",
    "mobilenetv2": "mobilenet-v2",
}
IMPORTED = {
    "inception-v4": "pytorchcv.models.inceptionv4:inceptionv4",
    "inception-resnet-v2": "pytorchcv.models.inceptionresnetv2:inceptionresnetv2",
}
DEPTHS: dict[str, dict[int, str]] = {
    "vgg": {
        11: "pytorchcv.models.vgg:vgg11",
        13: "pytorchcv.models.vgg:vgg13",
        16: "vgg16",
        19: "pytorchcv.models.vgg:vgg19",
    },
    "resnet": {
        18: "resnet18-v2",
        34: "pytorchcv.models.preresnet:preresnet34",
        50: "resnet50-v2",
        101: "pytorchcv.models.preresnet:preresnet101",
        152: "pytorchcv.models.preresnet:preresnet152",
        200: "pytorchcv.models.preresnet:preresnet200",
    },
    "resnet-v1": {
        18: "resnet18",
        34: "pytorchcv.models.resnet:resnet34",
        50: "resnet50",
        101: "pytorchcv.models.resnet:resnet101",
        152: "pytorchcv.models.resnet:resnet152",
    },
    "resnext": {
        50: "pytorchcv.models.resnext:resnext50_32x4d",
        101: "pytorchcv.models.resnext:resnext101_32x4d",
    },
}
SMALL: dict[str, dict[int, str]] = {
    "resnet": {
        20: "pytorchcv.models.preresnet_cifar:preresnet20_cifar10",
        56: "pytorchcv.models.preresnet_cifar:preresnet56_cifar10",
        110: "pytorchcv.models.preresnet_cifar:preresnet110_cifar10",
        164: "pytorchcv.models.preresnet_cifar:preresnet164bn_cifar10",
    },
    "resnet-v1": {
        20: "pytorchcv.models.resnet_cifar:resnet20_cifar10",
        56: "pytorchcv.models.resnet_cifar:resnet56_cifar10",
        110: "pytorchcv.models.resnet_cifar:resnet110_cifar10",
    },
}
"""Depths 6n + 2 and 9n + 2 of ResNets for pictures of 32 x 32 and 10 classes."""
USUAL = {"vgg": 11, "resnet": 50, "resnet-v1": 50, "resnext": 50}


def model_of(network: str, layers: int | None, classes: int) -> str:
    """Returns what `--model` takes. Raises ConfigError for a network or a depth that is not there."""
    network = {"resnetv1": "resnet-v1"}.get(network, network)
    if network in NAMED:
        return NAMED[network]
    if network in IMPORTED:
        return _of_paper_size(IMPORTED[network], network, classes)
    if network not in DEPTHS:
        known = [*NAMED, *IMPORTED, *DEPTHS]
        raise ConfigError(f"--network {network} is not rebuilt{nearest(network, known, listed=True)}")
    depth = USUAL[network] if layers is None else layers
    small = SMALL.get(network, {})
    if classes == 10 and depth in small:
        return small[depth]
    if depth not in DEPTHS[network]:
        depths = sorted({*DEPTHS[network], *(small if classes == 10 else ())})
        raise ConfigError(f"--network {network} has no --num-layers {depth}: there are {', '.join(map(str, depths))}")
    return _of_paper_size(DEPTHS[network][depth], f"{network} of {depth} layers", classes)


def _of_paper_size(path: str, what: str, classes: int) -> str:
    """Returns the path. Raises ConfigError for a network that is imported for another number of classes than 1000."""
    if ":" in path and classes != 1000:
        raise ConfigError(f"{what} is there for 1000 classes only, not for {classes}: give a function of your own")
    return path
