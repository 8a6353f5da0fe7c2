"""Cuts a text into samples of a language model: the bytes of a file, each to be predicted from those before it.

A sample is `context` bytes that follow one another, int32 [context], and its label is the byte after them. So the
target of each place is the byte at the next one, and that of the last place is the label.

Without a file the text is the standard library of the Python that runs: its top-level modules in the order of their
names, one MiB of them. Nothing is downloaded. The text differs between versions of Python, so losses of different
machines are compared under one version, or over one file.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import torch

from paceline.core.errors import ConfigError
from paceline.engine.data.dataset import Dataset, Splits

VOCABULARY = 256
DEFAULT_BYTES = 1 << 20
FILE_BYTES_MAX = 1 << 28
TEST_SHARE = 20
"""One sample in so many is for tests: the last ones of the text."""
TEST_SAMPLES_MAX = 256
"""More would tell little more, and evaluations would take the time of the training."""


def load(file: str, context: int) -> Splits:
    """Returns the samples of a text file, or of the standard library if `file` is "".

    Raises ConfigError for a file that cannot be read, is larger than 256 MiB, or has fewer than two samples.
    """
    text = _read(file) if file else _standard_library()
    count = (len(text) - 1) // context
    if count < 2:
        raise ConfigError(
            f"--data-file {file}: its {len(text)} bytes are fewer than two samples of {context}; take a longer text, "
            "or a smaller --context"
        )
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    x = tokens[: count * context].view(count, context).to(torch.int32)
    y = tokens[context : count * context + 1 : context].to(torch.int64)
    last = max(1, min(count // TEST_SHARE, TEST_SAMPLES_MAX))
    return Splits(
        train=Dataset(x[:-last], y[:-last], VOCABULARY, predicts_next=True),
        test=Dataset(x[-last:], y[-last:], VOCABULARY, predicts_next=True),
    )


def _read(file: str) -> bytes:
    try:
        size = os.path.getsize(file)
        if size > FILE_BYTES_MAX:
            raise ConfigError(f"--data-file {file}: {size >> 20} MiB; at most {FILE_BYTES_MAX >> 20} are read")
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"--data-file {file}: {error.strerror or error}") from None


def _standard_library() -> bytes:
    """Returns the beginning of the modules of the standard library, one after the other."""
    text = bytearray()
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += file.read_bytes()
        if len(text) >= DEFAULT_BYTES:
            break
    if not text:
        raise ConfigError("--data text: this Python has no sources of its standard library; give --data-file")
    return bytes(text[:DEFAULT_BYTES])
