"""MXNet's `.params` files are read; the files here are written as NDArray::Save writes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from paceline.compat.mxnet.params_file import TYPES, V1_MAGIC, V2_MAGIC, V3_MAGIC, read_params
from paceline.core.errors import ConfigError

NUMBERS = {dtype: number for number, dtype in TYPES.items()}
CPU, GPU = struct.pack("<ii", 1, 0), struct.pack("<ii", 2, 3)


def data_of(x: Tensor, device: bytes) -> bytes:
    """Device, type and numbers, which end each array."""
    return device + struct.pack("<i", NUMBERS[x.dtype]) + x.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def array(x: Tensor, magic: int = V2_MAGIC, device: bytes = CPU) -> bytes:
    """NDArray::Save of MXNet 0.12 and later; V1_MAGIC: of 0.12 to 1.0, without storage."""
    storage = b"" if magic == V1_MAGIC else struct.pack("<i", 0)
    return struct.pack("<I", magic) + storage + struct.pack(f"<i{x.dim()}q", x.dim(), *x.shape) + data_of(x, device)


def oldest(x: Tensor) -> bytes:
    """The same before 0.12: the number of dimensions stands where the magic number is."""
    return struct.pack(f"<I{x.dim()}I", x.dim(), *x.shape) + data_of(x, CPU)


def file_of(arrays: Sequence[bytes], names: Sequence[str]) -> bytes:
    """NDArray::Save of a list, with dmlc's vectors."""
    written = struct.pack("<QQQ", 0x112, 0, len(arrays)) + b"".join(arrays) + struct.pack("<Q", len(names))
    return written + b"".join(struct.pack("<Q", len(name)) + name.encode() for name in names)


def read(folder: Path, content: bytes) -> dict[str, Tensor]:
    (folder / "net-0001.params").write_bytes(content)
    return read_params(folder / "net-0001.params")


def test_a_checkpoint_has_its_parameters_and_states_by_name(tmp_path: Path) -> None:
    weight, mean = torch.randn(5, 3, 2, 2), torch.randn(5)
    found = read(tmp_path, file_of([array(weight), array(mean, device=GPU)], ["arg:conv0_weight", "aux:bn0_mean"]))
    assert list(found) == ["conv0_weight", "bn0_mean"]
    assert torch.equal(found["conv0_weight"], weight)
    assert torch.equal(found["bn0_mean"], mean)


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_every_type_is_read_as_it_is(tmp_path: Path, dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 3], [7, 0, 1]]).to(dtype)
    found = read(tmp_path, file_of([array(x)], ["w"]))["w"]
    assert found.dtype == dtype
    assert torch.equal(found, x)


def test_files_of_older_versions_are_read(tmp_path: Path) -> None:
    x = torch.randn(2, 3)
    found = read(tmp_path, file_of([oldest(x), array(x, V1_MAGIC), array(x)], ["a", "b", "c"]))
    assert all(torch.equal(each, x) for each in found.values())


def test_with_np_shapes_an_array_without_dimensions_is_one_number(tmp_path: Path) -> None:
    none = struct.pack("<Iii", V2_MAGIC, 0, 0)  # NDArray::Save ends after the shape of an empty one
    unknown = struct.pack("<Iii", V3_MAGIC, 0, -1)
    found = read(tmp_path, file_of([array(torch.tensor(2.5), V3_MAGIC), none, unknown], ["one", "none", "unknown"]))
    assert found["one"] == 2.5
    assert found["one"].shape == ()
    assert found["none"].numel() == found["unknown"].numel() == 0


def test_a_list_without_names_has_places(tmp_path: Path) -> None:
    assert list(read(tmp_path, file_of([array(torch.zeros(2)), array(torch.ones(1))], []))) == ["0", "1"]


def test_a_model_of_torch_takes_what_is_read(tmp_path: Path) -> None:
    theirs = {"fc1_weight": torch.randn(4, 3), "fc1_bias": torch.randn(4)}
    read_again = read(tmp_path, file_of([array(x) for x in theirs.values()], [f"arg:{name}" for name in theirs]))
    model = torch.nn.Sequential(torch.nn.Linear(3, 4))
    model.load_state_dict({"0.weight": read_again["fc1_weight"], "0.bias": read_again["fc1_bias"]})
    assert torch.equal(model[0].bias.detach(), theirs["fc1_bias"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is no .params file of MXNet: it does not begin with 0x112"),
        (b"PK" + bytes(40), "is no .params file of MXNet: it does not begin with 0x112"),
        (file_of([array(torch.ones(9))], ["w"])[:-30], "ends early"),
        (struct.pack("<QQQ", 0x112, 0, 2**60), "ends early"),
        (file_of([struct.pack("<IiiqiiiQ", V2_MAGIC, 0, 1, 2**40, 1, 0, 0, 0)], ["w"]), "ends early"),
        (file_of([struct.pack("<Iii", V2_MAGIC, 1, 1)], ["w"]), r"row_sparse: save them by tostype\('default'\)"),
        (file_of([struct.pack("<I", 99999)], ["w"]), "99999 dimensions; the file is damaged"),
        (file_of([struct.pack("<Iiiqiiiq", V2_MAGIC, 0, 1, -1, 1, 0, 0, 0)], ["w"]), "its size was not known"),
        (file_of([struct.pack("<Iiiqiiiq", V2_MAGIC, 0, 1, 1, 1, 0, 40, 0)], ["w"]), "MXNet's type 40"),
        (file_of([array(torch.ones(1))] * 2, ["w"]), "has 2 arrays and 1 names"),
        (file_of([array(torch.ones(1))] * 2, ["arg:w", "aux:w"]), "two arrays of one name"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        read(tmp_path, content)
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot read .*: No such file"):
        read_params(tmp_path / "missing.params")
