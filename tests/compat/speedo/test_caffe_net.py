"""Networks of torch from net files of Caffe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.compat.speedo.caffe_net import TEST, TRAIN, built, data, source_of
from paceline.core.errors import ConfigError
from paceline.engine.models import build
from paceline.engine.specs import ModelRecipe
from tests.compat.speedo.nets import CIFAR10_FULL, LENET, TINY


def net(folder: Path, text: str) -> str:
    (folder / "net.prototxt").write_text(text)
    return str(folder / "net.prototxt")


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_lenet_of_caffes_example_has_its_431_080_parameters(tmp_path: Path) -> None:
    module = built(net(tmp_path, LENET))
    assert module(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert parameters(module) == 431_080
    assert float(module[0].bias.detach().abs().max()) == 0.0  # type: ignore[union-attr, operator]


def test_cifar10_full_is_the_network_of_that_name_here(tmp_path: Path) -> None:
    module = built(net(tmp_path, CIFAR10_FULL))
    torch.manual_seed(0)
    x = torch.randn(4, 3, 32, 32)
    module(x)
    ours = build(ModelRecipe(name="cifar10-full"), (3, 32, 32), 10, seed=0)
    assert parameters(module) == parameters(ours) == 89_578
    with torch.no_grad():
        for one, other in zip(module.parameters(), ours.parameters(), strict=True):
            other.copy_(one)
    assert torch.allclose(module(x), ours(x), atol=1e-7)


def test_the_older_notation_is_read(tmp_path: Path) -> None:
    module = built(net(tmp_path, TINY))
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    assert [type(layer).__name__ for layer in module] == ["Flatten", "Linear", "ReLU", "Flatten", "Linear"]


def layer(kind: str, inside: str = "", bottoms: str = 'bottom: "data"') -> str:
    return f'layer {{ name: "x" type: "{kind}" {bottoms} top: "x" {inside} }}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (layer("Concat"), "layer x has the type Concat, which is not here; there are Data, Convolution"),
        (layer("ReLU", bottoms='bottom: "a" bottom: "b"'), "only a chain of layers is here"),
        (layer("ReLU") + layer("ReLU", bottoms='bottom: "data"'), "only a chain of layers is here"),
        (layer("InnerProduct"), "layer x: has no num_output"),
        (layer("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }"), "pooling STOCHASTIC is not here"),
        (
            layer("Convolution", "convolution_param { num_output: 2 kernel_size: 3 dilation: 2 }"),
            "dilation is not here",
        ),
        ("", "has no layers"),
    ],
)
def test_what_is_not_here_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        built(net(tmp_path, text))


def test_an_unknown_filler_is_refused_when_the_sizes_are_known(tmp_path: Path) -> None:
    filler = 'inner_product_param { num_output: 2 weight_filler { type: "bilinear" } }'
    with pytest.raises(ConfigError, match="filler bilinear is not here"):
        built(net(tmp_path, layer("InnerProduct", filler)))(torch.zeros(1, 4))


def test_each_phase_has_its_source_and_batch(tmp_path: Path) -> None:
    path = Path(net(tmp_path, LENET))
    train, test = source_of(path, TRAIN), source_of(path, TEST)
    assert train is not None
    assert test is not None
    assert (train.path, train.batch_size, train.scale) == (tmp_path / "train_lmdb", 64, 0.00390625)
    assert (test.path, test.batch_size) == (tmp_path / "test_lmdb", 100)
    assert source_of(Path(net(tmp_path, TINY)), TRAIN) is None
    for old, new, words in (
        ("backend: LMDB", "backend: DATUMFILE", "has the backend DATUMFILE; convert it"),
        ("scale: 0.00390625", "crop_size: 24", "crops or mirrors: leave that out, and give --augment"),
    ):
        with pytest.raises(ConfigError, match=words):
            source_of(Path(net(tmp_path, LENET.replace(old, new))), TRAIN)


def test_samples_are_those_of_the_databases_scaled(tmp_path: Path) -> None:
    lmdb: Any = pytest.importorskip("lmdb", reason="lmdb is not installed (paceline[lmdb])")
    for name, count in (("train_lmdb", 6), ("test_lmdb", 2)):
        with lmdb.open(str(tmp_path / name), map_size=2**20) as database, database.begin(write=True) as writer:
            for n in range(count):  # a Datum: channels 1, height 2, width 2, data, label
                datum = bytes([8, 1, 16, 2, 24, 2, 34, 4, 0, 64, 128, 4 * n, 40, n])
                writer.put(f"{n:08}".encode(), datum)
    (x, y), (x_test, y_test) = data(net(tmp_path, LENET))
    assert (x.shape, y.tolist()) == ((6, 1, 2, 2), list(range(6)))
    assert x[1].flatten().tolist() == [0.0, 0.25, 0.5, 4 / 256]
    assert (x_test.shape, y_test.tolist()) == ((2, 1, 2, 2), [0, 1])
