"""The numbers of any tensor are read, compared and written as bytes, piece by piece."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from paceline.engine.model.tensor_bytes import (
    DIGEST_BYTES,
    digest_of,
    nbytes_of,
    parts_of,
    put_together,
    read_bytes,
    write_bytes,
)

PLAIN: dict[str, Callable[[], Tensor]] = {
    "float32": lambda: torch.randn(5, 7),
    "transposed": lambda: torch.randn(6, 4).t(),
    "channels last": lambda: torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last),
    "every other": lambda: torch.randn(9)[::2],
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "bfloat16": lambda: torch.randn(5).bfloat16(),
    "float8": lambda: torch.randn(5).to(torch.float8_e4m3fn),
    "complex": lambda: torch.randn(5, dtype=torch.complex64),
    "flags": lambda: torch.rand(5) > 0.5,
    "packed": lambda: torch.randint(0, 255, (5, 1), dtype=torch.uint8),
    "a number": lambda: torch.randn(()),
    "nothing": lambda: torch.zeros(0, 3),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_a_tensor_takes_another_ones_numbers_piece_by_piece(kind: str) -> None:
    ours, theirs = PLAIN[kind](), PLAIN[kind]()
    (mine,), (other,) = parts_of(ours), parts_of(theirs)
    step, strides = 3 * mine.tensor.element_size(), ours.stride()
    for start in range(0, nbytes_of(mine.tensor), step):
        write_bytes(mine.tensor, start, read_bytes(other.tensor, start, min(nbytes_of(mine.tensor), start + step)))
    assert ours.tolist() == theirs.tolist()
    assert ours.stride() == strides
    assert digest_of(mine.tensor) == digest_of(other.tensor)


def quantized(per_channel: bool) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if per_channel:
            return torch.quantize_per_channel(torch.randn(2, 3), torch.rand(2), torch.tensor([0, 1]), 0, torch.qint8)
        return torch.quantize_per_tensor(torch.randn(4), float(torch.rand(())), 3, torch.qint8)


APART: dict[str, Callable[[int], Tensor]] = {
    "sparse": lambda n: torch.eye(4)[:, :n].to_sparse() if n == 4 else torch.ones(4, 4).to_sparse(),
    "quantized": lambda n: quantized(False),
    "quantized by channel": lambda n: quantized(True),
}


@pytest.mark.parametrize("kind", APART)
def test_what_has_no_memory_of_its_own_is_put_together(kind: str) -> None:
    """Another sparse tensor has other indices, and another number of them."""
    ours, theirs = APART[kind](4), APART[kind](3)
    put_together(ours, [part.tensor for part in parts_of(theirs)])
    whole = (lambda t: t.to_dense()) if ours.is_sparse else (lambda t: t.dequantize())
    assert torch.equal(whole(ours), whole(theirs))


def test_a_sparse_tensor_by_rows_is_put_together() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = torch.eye(3).to_sparse_csr(), torch.ones(3, 3).to_sparse_csr()
        put_together(ours, [part.tensor for part in parts_of(theirs)])
        assert torch.equal(ours.to_dense(), torch.ones(3, 3))


def test_indices_beyond_the_tensor_are_refused() -> None:
    with pytest.raises(RuntimeError):
        put_together(torch.eye(2).to_sparse(), [torch.tensor([[9], [0]]), torch.ones(1)])


def test_a_tensor_without_numbers_has_no_parts() -> None:
    assert parts_of(torch.zeros(3, device="meta")) == []


@pytest.mark.parametrize("words", [1, 2, 1 << 18, (1 << 18) + 3])
def test_any_changed_number_changes_the_digest(words: int) -> None:
    t = torch.randn(words, generator=torch.Generator().manual_seed(1))
    digests = {digest_of(t)}
    assert len(*digests) == DIGEST_BYTES
    for at in {0, words // 2, words - 1}:
        changed = t.clone()
        changed[at] = -changed[at]
        digests.add(digest_of(changed))
    digests.add(digest_of(t.view(1, -1)))
    digests.add(digest_of(t.view(torch.int32)))
    digests.add(digest_of(-t))
    assert len(digests) == len({0, words // 2, words - 1}) + (3 if words == 1 else 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_digest_is_the_same_on_a_gpu() -> None:
    t = torch.randn(1_000_003)
    assert digest_of(t.cuda()) == digest_of(t)


def test_a_tensor_that_was_read_can_be_resized() -> None:
    """Observers of quantization make their buffers longer; torch refuses that after `numpy()`."""
    buffer = nn.Buffer(torch.zeros(2))
    read_bytes(buffer, 0, 8)
    digest_of(buffer)
    buffer.resize_(5)
