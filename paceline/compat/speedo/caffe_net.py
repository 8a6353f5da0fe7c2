"""Builds a network of torch from a net file of Caffe: the layers that its CIFAR-10 and LeNet nets have.

    Data                     where samples come from: an LMDB
    Convolution, Pooling, InnerProduct, ReLU, LRN, Dropout, Flatten
    SoftmaxWithLoss, Softmax, Accuracy        left out: the loss is the cross-entropy of the scores here

The layers have to be one chain, in which each takes what the one before gives. Everything else is refused by name.
Weights begin as the fillers say. Rates and decay of single blobs (`lr_mult`, `decay_mult`) are not followed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from paceline.compat.speedo.text_format import Message, one, read_text
from paceline.core.errors import ConfigError
from paceline.engine.data.formats.caffe_lmdb import read_database
from paceline.engine.data.formats.mean_file import read_mean

TRAIN, TEST = "TRAIN", "TEST"
SOURCES = ("Data",)
ENDS = ("SoftmaxWithLoss", "Softmax", "Accuracy")
OLD_NAMES = {
    "DATA": "Data",
    "CONVOLUTION": "Convolution",
    "POOLING": "Pooling",
    "INNER_PRODUCT": "InnerProduct",
    "RELU": "ReLU",
    "LRN": "LRN",
    "DROPOUT": "Dropout",
    "FLATTEN": "Flatten",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SOFTMAX": "Softmax",
    "ACCURACY": "Accuracy",
}
"""Names of types before 2014, in `layers { type: CONVOLUTION }`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaffeSource:
    """Says where the samples of one phase are: an LMDB, the batch, the mean file ("" for none) and a factor."""

    path: Path
    batch_size: int
    mean_file: str
    scale: float


def layers_of(net: Message, phase: str) -> list[Message]:
    """Returns the layers of a phase, in both notations, each with its type by today's name."""
    layers = []
    for layer in [*net.get("layer", []), *net.get("layers", [])]:
        kind = str(one(layer, "type", ""))
        phases = [one(rule, "phase", phase) for rule in layer.get("include", [])]
        if not phases or phase in phases:
            layers.append({**layer, "type": [OLD_NAMES.get(kind, kind)]})
    return layers


def source_of(path: Path, phase: str) -> CaffeSource | None:
    """Returns where the samples of `phase` are; None where the net does not say. Raises ConfigError."""
    for layer in layers_of(read_text(path), phase):
        if one(layer, "type", "") not in SOURCES:
            continue
        given, changes = one(layer, "data_param", {}), one(layer, "transform_param", {})
        name, backend = one(layer, "name", "data"), one(given, "backend", "LMDB")
        if backend != "LMDB":
            raise ConfigError(
                f"{path}: layer {name} has the backend {backend}; convert it with Caffe's convert_imageset "
                "--backend=lmdb, or name other data with --data"
            )
        if one(changes, "crop_size", 0) or one(changes, "mirror", False):
            raise ConfigError(f"{path}: layer {name} crops or mirrors: leave that out, and give --augment")
        mean = one(changes, "mean_file", "")
        return CaffeSource(
            path=_beside(path, one(given, "source", "")),
            batch_size=int(one(given, "batch_size", 1)),
            mean_file=str(_beside(path, mean)) if mean else "",
            scale=float(one(changes, "scale", 1.0)),
        )
    return None


def _beside(net: Path, name: str) -> Path:
    """Returns a path of the net file: from the working directory, as Caffe has it, or else from the net's folder."""
    here = Path(name)
    return here if here.exists() or here.is_absolute() else net.parent / here


def data(net: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Returns what a net trains and tests on, pixels less the mean file and times the scale. Raises ConfigError."""
    parts = []
    for phase in (TRAIN, TEST):
        source = source_of(Path(net), phase)
        if source is None:
            raise ConfigError(f"{net}: has no layer Data for the phase {phase}; name data with --data")
        pixels = read_database(source.path, 0)
        x = pixels.x.float()
        if source.mean_file:
            x = x - read_mean(source.mean_file)
        parts.append((x * source.scale, pixels.y))
    return parts[0], parts[1]


def built(net: str) -> nn.Sequential:
    """Returns the network of a net file; input sizes follow from the first batch. Raises ConfigError."""
    path = Path(net)
    modules: list[nn.Module] = []
    blob = ""
    for layer in layers_of(read_text(path), TRAIN):
        kind, name = one(layer, "type", ""), one(layer, "name", "?")
        if kind in SOURCES:
            blob = layer["top"][0]
            continue
        if kind in ENDS:
            continue
        if kind not in MAKERS:
            known = ", ".join([*SOURCES, *MAKERS, *ENDS])
            raise ConfigError(f"{path}: layer {name} has the type {kind}, which is not here; there are {known}")
        bottoms = layer.get("bottom", [])
        if len(bottoms) != 1 or (blob and bottoms[0] != blob):
            raise ConfigError(f"{path}: layer {name} takes {bottoms}: only a chain of layers is here")
        blob = layer.get("top", bottoms)[0]
        made = MAKERS[kind](layer, f"{path}: layer {name}")
        if isinstance(made, nn.LazyLinear):
            modules.append(nn.Flatten())
        modules.append(made)
    if not modules:
        raise ConfigError(f"{path}: has no layers")
    return nn.Sequential(*modules)


# ---- the layers ------------------------------------------------------------------------------------------------------
class FilledConvolution(nn.LazyConv2d):
    """A convolution that learns its input channels from the first batch, and then fills its weights as Caffe does."""

    fill: Callable[[Any], None]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        super().initialize_parameters(*args, **kwargs)
        self.fill(self)


class FilledLinear(nn.LazyLinear):
    """The same, for a linear layer."""

    fill: Callable[[Any], None]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        super().initialize_parameters(*args, **kwargs)
        self.fill(self)


class LocalNorm(nn.Module):
    """Divides by (1 + alpha * mean of squares) ^ beta over `size` x `size` neighbours of one channel."""

    def __init__(self, size: int, alpha: float, beta: float) -> None:
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta

    def forward(self, x: Tensor) -> Tensor:
        mean = avg_pool2d(x * x, self.size, stride=1, padding=self.size // 2)
        return x / (1 + self.alpha * mean) ** self.beta


def _convolution(layer: Message, where: str) -> nn.Module:
    given = one(layer, "convolution_param", {})
    for name in ("dilation", "axis", "engine"):
        if name != "engine" and one(given, name, 1) != 1:
            raise ConfigError(f"{where}: {name} is not here")
    made = FilledConvolution(
        int(_needed(given, "num_output", where)),
        _pair(given, "kernel_size", "kernel", None, where),
        _pair(given, "stride", "stride", 1, where),
        _pair(given, "pad", "pad", 0, where),
        groups=int(one(given, "group", 1)),
        bias=bool(one(given, "bias_term", True)),
    )
    made.fill = functools.partial(_fill, given, where)
    return made


def _inner_product(layer: Message, where: str) -> nn.Module:
    given = one(layer, "inner_product_param", {})
    made = FilledLinear(int(_needed(given, "num_output", where)), bias=bool(one(given, "bias_term", True)))
    made.fill = functools.partial(_fill, given, where)
    return made


def _pooling(layer: Message, where: str) -> nn.Module:
    given = one(layer, "pooling_param", {})
    method, pad = one(given, "pool", "MAX"), _pair(given, "pad", "pad", 0, where)
    if one(given, "global_pooling", False):
        return nn.AdaptiveAvgPool2d(1) if method == "AVE" else nn.AdaptiveMaxPool2d(1)
    kernel = _pair(given, "kernel_size", "kernel", None, where)
    stride = _pair(given, "stride", "stride", 1, where)
    if method not in ("MAX", "AVE"):
        raise ConfigError(f"{where}: pooling {method} is not here; there are MAX and AVE")
    pooling = nn.MaxPool2d if method == "MAX" else nn.AvgPool2d
    return pooling(kernel, stride, pad, ceil_mode=True)  # Caffe rounds up


def _relu(layer: Message, where: str) -> nn.Module:
    slope = float(one(one(layer, "relu_param", {}), "negative_slope", 0.0))
    return nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU(inplace=True)


def _norm(layer: Message, where: str) -> nn.Module:
    given = one(layer, "lrn_param", {})
    size, alpha, beta = (
        int(one(given, "local_size", 5)),
        float(one(given, "alpha", 1.0)),
        float(one(given, "beta", 0.75)),
    )
    if one(given, "norm_region", "ACROSS_CHANNELS") == "WITHIN_CHANNEL":
        return LocalNorm(size, alpha, beta)
    return nn.LocalResponseNorm(size, alpha, beta, float(one(given, "k", 1.0)))


def _dropout(layer: Message, where: str) -> nn.Module:
    return nn.Dropout(float(one(one(layer, "dropout_param", {}), "dropout_ratio", 0.5)))


def _flatten(layer: Message, where: str) -> nn.Module:
    return nn.Flatten()


MAKERS: dict[str, Callable[[Message, str], nn.Module]] = {
    "Convolution": _convolution,
    "Pooling": _pooling,
    "InnerProduct": _inner_product,
    "ReLU": _relu,
    "LRN": _norm,
    "Dropout": _dropout,
    "Flatten": _flatten,
}


def _needed(given: Message, name: str, where: str) -> Any:
    if name not in given:
        raise ConfigError(f"{where}: has no {name}")
    return one(given, name, None)


def _pair(given: Message, name: str, stem: str, default: int | None, where: str) -> tuple[int, int]:
    """Returns height and width, from one number or from `stem`_h and `stem`_w."""
    if f"{stem}_h" in given:
        return int(one(given, f"{stem}_h", 0)), int(one(given, f"{stem}_w", 0))
    size = _needed(given, name, where) if default is None else one(given, name, default)
    return int(size), int(size)


def _fill(given: Message, where: str, layer: Any) -> None:
    """Draws weights and biases as the fillers say; without one they are 0, as in Caffe."""
    with torch.no_grad():
        for tensor, name in ((layer.weight, "weight_filler"), (layer.bias, "bias_filler")):
            if tensor is not None:
                _fill_tensor(tensor, one(given, name, {}), where)


def _fill_tensor(tensor: Tensor, filler: Message, where: str) -> None:
    inputs = tensor[0].numel()
    match one(filler, "type", "constant"):
        case "constant":
            tensor.fill_(float(one(filler, "value", 0.0)))
        case "gaussian":
            tensor.normal_(float(one(filler, "mean", 0.0)), float(one(filler, "std", 1.0)))
        case "uniform":
            tensor.uniform_(float(one(filler, "min", 0.0)), float(one(filler, "max", 1.0)))
        case "xavier":
            tensor.uniform_(-((3 / inputs) ** 0.5), (3 / inputs) ** 0.5)
        case "msra":
            tensor.normal_(0.0, (2 / inputs) ** 0.5)
        case other:
            raise ConfigError(f"{where}: filler {other} is not here")
