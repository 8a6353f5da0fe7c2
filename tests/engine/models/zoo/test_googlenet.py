"""GoogLeNet against Table 1 of its paper."""

from __future__ import annotations

import torch

from paceline.engine.models.zoo.googlenet import GoogLeNet, Inception


def test_the_maps_have_the_sizes_of_table_1() -> None:
    with torch.device("meta"):
        model = GoogLeNet().eval()
    seen: list[list[int]] = []
    for layer in model.features:
        if isinstance(layer, Inception):
            layer.register_forward_hook(lambda _, __, result: seen.append(list(result.shape[1:])))
    model(torch.empty(1, 3, 224, 224, device="meta"))
    channels = [256, 480, 512, 512, 512, 528, 832, 832, 1024]
    assert seen == [[c, side, side] for c, side in zip(channels, [28] * 2 + [14] * 5 + [7] * 2, strict=True)]
