"""The networks of ESync's command line: their names here, the size of their pictures, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EsyncNetwork:
    """Describes one network.

    model       its name for --model
    side        to how many pixels a side ESync enlarges Fashion-MNIST for it
    parameters  of the published network with 10 classes and one channel, which is what ESync sent
    """

    model: str
    side: int
    parameters: int


def _rgb(parameters: int, kernel: int, channels: int, features: int) -> int:
    """Returns the parameters with 10 classes instead of 1000, and one input channel instead of three."""
    return parameters - 990 * (features + 1) - 2 * kernel * kernel * channels


NETWORKS = {
    "alexnet": EsyncNetwork(model="alexnet", side=224, parameters=_rgb(61_100_840, 11, 64, 4096)),
    "resnet18-v1": EsyncNetwork(model="resnet18", side=28, parameters=_rgb(11_689_512, 7, 64, 512)),
    "resnet50-v1": EsyncNetwork(model="resnet50", side=28, parameters=_rgb(25_557_032, 7, 64, 2048)),
    "resnet50-v2": EsyncNetwork(model="resnet50-v2", side=28, parameters=_rgb(25_549_480, 7, 64, 2048)),
    "mobilenet-v1": EsyncNetwork(model="mobilenet", side=28, parameters=_rgb(4_231_976, 3, 32, 1024)),
    # The convolution that classifies has no bias in Gluon.
    "mobilenet-v2": EsyncNetwork(model="mobilenet-v2", side=28, parameters=3_503_872 - 1000 - 990 * 1280 - 2 * 9 * 32),
    "inception-v3": EsyncNetwork(model="inception-v3", side=299, parameters=_rgb(23_834_568, 3, 32, 2048)),
}
"""By the names that `-n` takes. Parameters follow from the published counts for 1000 classes and three channels."""

BYTES_A_PARAMETER = 4
