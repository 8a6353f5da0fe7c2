"""Fits a published network to other pictures, classes and widths.

The network is made on the meta device, where tensors have shapes and no memory, and is changed there:

1. strides: on small pictures the first layers with a stride keep the side, so that the last map has at least three
   pixels a side (the published CIFAR variants of ResNet and MobileNet do so);
2. the classifier's pooling takes what size there is;
3. layers: each gets as many inputs as reach it in a forward pass, and its outputs times `width`.

At the paper's size, width and classes nothing changes. Only then is memory taken, and the weights are drawn.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.engine.models.layers import scaled

SIDE_LEFT = 3
"""The least side of the last map. Two would be 1 for networks that do not pad, and batch normalisation cannot train on
one pixel of one sample."""
LARGE_KERNEL = 7
"""A convolution at least as large becomes 3x3 where it loses its stride, as in the CIFAR variants: it was made for
large pictures."""

Make = Callable[[], nn.Module]
Reduction = tuple[int, list[nn.Module]]
"""A stride, and the layers that apply it side by side."""


def fitted(
    name: str, make: Make, paper_side: int, shape: tuple[int, int, int], classes: int, width: float
) -> nn.Module:
    """Returns the network for pictures `shape` ([c, h, w]), its weights drawn from torch's generator.

    make: returns a module with `features` and then `output`, for [n, 3, paper_side, paper_side]. Raises ConfigError
    for pictures that are too small.
    """
    try:
        module = shaped(make, paper_side, shape, classes, width)
    except ConfigError:
        raise
    except (RuntimeError, ValueError):  # a pooling or convolution gives no pixel
        least = _least_side(make, paper_side, classes)
        raise ConfigError(
            f"model {name}: pictures of {shape[1]} x {shape[2]} are too small for it: enlarge them, --resize {least}"
        ) from None
    module.to_empty(device="cpu")
    draw_weights(module)
    return module


def shaped(make: Make, paper_side: int, shape: tuple[int, int, int], classes: int, width: float) -> nn.Module:
    """Returns the network on the meta device."""
    with torch.device("meta"):
        module = make()
    reductions, paper_map = _measured(module, paper_side)
    if shape[1:] != (paper_side, paper_side):
        _keep_side(reductions, min(shape[1:]))
    features = _features(module)
    if hasattr(features, "final_pool"):
        features.final_pool = nn.AdaptiveAvgPool2d(1)
    else:
        features.add_module("fitting_pool", _PoolLarger(paper_map))
    _resize(module, shape, classes, width)
    return module


def _least_side(make: Make, paper_side: int, classes: int) -> int:
    """Returns a side from 16 upwards at which the network can be trained."""
    for side in range(16, paper_side, 16):
        try:
            shaped(make, paper_side, (3, side, side), classes, 1.0)
        except (RuntimeError, ValueError):
            continue
        return side
    return paper_side


def _features(module: nn.Module) -> nn.Sequential:
    features = module.features
    assert isinstance(features, nn.Sequential)
    return features


class _PoolLarger(nn.Module):
    """Pools maps larger than `side` to it, by means; smaller ones stay as they are."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        h, w = (min(self.side, side) for side in x.shape[2:])
        # The library flattens it by a view, which a batch with its channels last would not have.
        return nn.functional.adaptive_avg_pool2d(x, (h, w)).contiguous()


def _measured(module: nn.Module, side: int) -> tuple[list[Reduction], int]:
    """Returns the network's reductions from first to last, and the side of the last map before pooling.

    Layers with a stride whose inputs have the same side are parallel branches of one reduction.
    """
    by_side: dict[int, list[nn.Module]] = defaultdict(list)
    last: list[int] = []

    def note(layer: nn.Module, given: tuple[Tensor, ...], _: Any) -> None:
        if _stride(layer) > 1:
            by_side[given[0].shape[-1]].append(layer)

    def note_last(_: nn.Module, __: Any, result: Tensor) -> None:
        last.append(result.shape[-1])

    strided = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.MaxPool2d)]
    hooks = [layer.register_forward_hook(note) for layer in strided]
    hooks.append(_features(module).register_forward_hook(note_last))
    module.eval()(torch.empty(1, 3, side, side, device="meta"))
    module.train()
    for hook in hooks:
        hook.remove()
    return [(_stride(layers[0]), layers) for _, layers in sorted(by_side.items(), reverse=True)], last[0]


def _stride(layer: nn.Module) -> int:
    stride = getattr(layer, "stride", 1)
    return int(stride[0] if isinstance(stride, tuple) else stride)


def _keep_side(reductions: list[Reduction], side: int) -> None:
    """Lowers strides, from the first layers on, until at least SIDE_LEFT of `side` are left.

    All layers with a stride get such a padding that parallel branches give maps of one size, whatever `side` is.
    """
    total = math.prod(stride for stride, _ in reductions)
    for stride, layers in reductions:
        lowered = stride
        while lowered > 1 and total * SIDE_LEFT > side:
            lowered, total = lowered // 2, total // 2
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                _set_conv_stride(layer, lowered)
            elif isinstance(layer, nn.MaxPool2d):
                _set_pool_stride(layer, lowered)


def _set_conv_stride(layer: nn.Conv2d, stride: int) -> None:
    if stride == 1 and layer.kernel_size[0] >= LARGE_KERNEL:
        layer.kernel_size = (3, 3)
    layer.stride = (stride, stride)
    layer.padding = tuple(kernel // 2 for kernel in layer.kernel_size)


def _set_pool_stride(layer: nn.MaxPool2d, stride: int) -> None:
    kernel = layer.kernel_size
    assert isinstance(kernel, int)
    if kernel % 2 == 0:
        if stride > 1:
            return
        kernel = 1  # a pooling of an even size cannot keep the side; one of 1 pools nothing
    layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode = kernel, stride, kernel // 2, False


def _resize(module: nn.Module, shape: tuple[int, int, int], classes: int, width: float) -> None:
    """Gives each layer the inputs that reach it, and its outputs times `width`, the last one `classes`."""
    layers = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear | nn.BatchNorm2d)]
    last = [m for m in layers if not isinstance(m, nn.BatchNorm2d)][-1]

    def resize(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        inputs = given[0].shape[1]
        match layer:
            case nn.BatchNorm2d():
                _resize_norm(layer, inputs)
            case nn.Conv2d():
                outputs = classes if layer is last else scaled(layer.out_channels, width)
                _resize_conv(layer, inputs, outputs)
            case nn.Linear():
                outputs = classes if layer is last else scaled(layer.out_features, width)
                layer.in_features, layer.out_features = inputs, outputs
                layer.weight = _empty(outputs, inputs)
                layer.bias = None if layer.bias is None else _empty(outputs)

    hooks = [layer.register_forward_pre_hook(resize) for layer in layers]
    # In training mode, with one sample: what batch normalisation refuses is found here.
    module(torch.empty(1, *shape, device="meta"))
    for hook in hooks:
        hook.remove()


def _resize_conv(layer: nn.Conv2d, inputs: int, outputs: int) -> None:
    if layer.groups == layer.in_channels > 1:  # depthwise: one filter a channel
        layer.groups = outputs = inputs
    layer.in_channels, layer.out_channels = inputs, outputs
    layer.weight = _empty(outputs, inputs // layer.groups, *layer.kernel_size)
    layer.bias = None if layer.bias is None else _empty(outputs)


def _resize_norm(layer: nn.BatchNorm2d, channels: int) -> None:
    layer.num_features = channels
    layer.weight, layer.bias = _empty(channels), _empty(channels)
    layer.running_mean = torch.empty(channels, device="meta")
    layer.running_var = torch.empty(channels, device="meta")


def _empty(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, device="meta"))


def draw_weights(module: nn.Module) -> None:
    """Draws all weights: normal with variance 2 / inputs in front of a ReLU (He et al. 2015), the classifier as torch
    does; batch normalisation begins as the identity.
    """
    layers = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
            layer.reset_parameters()
    for layer in layers[:-1]:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
