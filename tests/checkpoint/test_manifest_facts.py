"""Checkpoints that somebody has made to harm: each is passed over, in one line, and a good one beside it is taken."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from paceline.checkpoint.folder_store import CHECKPOINTS, MANIFEST, FolderStore
from paceline.checkpoint.manifest import BYTES_MAX
from paceline.core.errors import ConfigError
from paceline.runtime.checkpointing.resume import find
from tests.runtime.one_process import resumed

MODEL = "model.safetensors"


NAN, INFINITY = float("nan"), float("inf")


def framed(text: str | bytes) -> bytes:
    """With the checksum that its author can count as well as anybody."""
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    return f"{zlib.crc32(data):08x}\n".encode() + data + b"\n"


def manifest(facts: str = "{}", listed: str = '[["model.safetensors", 3, 7]]', finite: str = "true") -> bytes:
    return framed(f'{{"files": {listed}, "finite": {finite}, "facts": {facts}}}')


DEEP = 200_000


NONSENSE: dict[str, bytes] = {
    "deep lists": manifest("[" * DEEP + "]" * DEEP),
    "deep tables": manifest('{"a":' * DEEP + "1" + "}" * DEEP),
    "deep, but not too deep for Python": manifest('{"a":' * 100 + "1" + "}" * 100),
    "never closed": framed("[" * DEEP),
    "infinity": manifest('{"accuracy": Infinity}'),
    "minus infinity": manifest('{"samples": -Infinity}'),
    "not a number": manifest('{"accuracy": NaN}'),
    "overflow": manifest('{"accuracy": 1e999}'),
    "a long number": manifest('{"samples": ' + "9" * 5000 + "}"),
    "samples as a text": manifest('{"samples": "many"}'),
    "samples as a list": manifest('{"samples": []}'),
    "samples that are true": manifest('{"samples": true}'),
    "negative samples": manifest('{"samples": -1}'),
    "more samples than there are": manifest('{"samples": 1180591620717411303424}'),
    "version as a list": manifest('{"version": [1]}'),
    "identity as a list": manifest('{"identity": []}'),
    "identity with odd data": manifest('{"identity": {"data": 7}}'),
    "tables as a list": manifest('{"tables": [1]}'),
    "tables without clocks": manifest('{"tables": {"version": 1}}'),
    "clocks of odd rows": manifest('{"tables": {"version": 1, "clocks": [[1]], "seen": [], "shift": []}}'),
    "a negative clock": manifest('{"tables": {"version": 1, "clocks": [[0, -5]], "seen": [], "shift": []}}'),
    "numbers that are texts": manifest('{"numbers": {"momentum": "x"}}'),
    "shares as a number": manifest('{"shares": 3}'),
    "a share without spans": manifest('{"shares": [[3]]}'),
    "spans beyond the place of a share": manifest('{"shares": [[3, [[1, 4]]]]}'),
    "spans of a share that overlap": manifest('{"shares": [[9, [[1, 4], [3, 5]]]]}'),
    "an empty span of a share": manifest('{"shares": [[9, [[4, 4]]]]}'),
    "a lead that is nobody": manifest('{"lead": -1}'),
    "flags that are texts": manifest('{"lock_step": "yes"}'),
    "facts as a list": manifest("[]"),
    "no facts": framed('{"files": [["model.safetensors", 3, 7]], "finite": true}'),
    "not even a table": framed("7"),
    "a name twice": manifest('{"samples": 1, "samples": 2}'),
    "half a character": manifest('{"samples": 1, "note": "\\ud800"}'),
    "no UTF-8": framed(b"\xff\xfe\x00"),
    "finite as a text": manifest(finite='"yes"'),
    "files as a table": manifest(listed="{}"),
    "a file of two values": manifest(listed='[["model.safetensors", 3]]'),
    "a file of negative length": manifest(listed='[["model.safetensors", -3, 7]]'),
    "a file longer than any disk": manifest(listed='[["model.safetensors", 1180591620717411303424, 7]]'),
    "a file twice": manifest(listed='[["model.safetensors", 3, 7], ["model.safetensors", 3, 7]]'),
    "a path that leads out": manifest(listed='[["../../../etc/passwd", 3, 7]]'),
    "a path that is a list": manifest(listed='[[["a"], 3, 7]]'),
    "cut short": manifest()[:-9],
    "nothing": b"",
    "zeros": bytes(4096),
    "longer than allowed": manifest(json.dumps({"a": "x" * BYTES_MAX})),
}


def good(out: Path) -> FolderStore:
    """A folder of checkpoints with a sound one, number 1."""
    folder = FolderStore(out / CHECKPOINTS)
    folder.save(1, {MODEL: [save({"w": torch.ones(3)})]}, finite=True, samples=64)
    return folder


def fifo(place: Path) -> None:
    os.mkfifo(place / MANIFEST)


def loop(place: Path) -> None:
    (place / MANIFEST).symlink_to(place / MANIFEST)


def device(place: Path) -> None:
    (place / MANIFEST).symlink_to("/dev/zero")


def folder_as_manifest(place: Path) -> None:
    (place / MANIFEST).mkdir()


def huge(place: Path) -> None:
    with (place / MANIFEST).open("wb") as file:
        file.truncate(1 << 40)


def fifo_as_model(place: Path) -> None:
    os.mkfifo(place / MODEL)
    (place / MANIFEST).write_bytes(manifest())


def model_of_another(place: Path) -> None:
    (place / MODEL).symlink_to("/etc/hostname")
    data = Path("/etc/hostname").read_bytes()
    (place / MANIFEST).write_bytes(manifest(listed=json.dumps([[MODEL, len(data), zlib.crc32(data)]])))


def huge_model(place: Path) -> None:
    with (place / MODEL).open("wb") as file:
        file.truncate(1 << 40)
    (place / MANIFEST).write_bytes(manifest())


@pytest.mark.parametrize("craft", [fifo, device, folder_as_manifest, huge, fifo_as_model, model_of_another, huge_model])
def test_files_that_never_end_or_are_none_are_passed_over(tmp_path: Path, craft: Callable[[Path], None]) -> None:
    folder = good(tmp_path)
    folder.place(2).mkdir()
    craft(folder.place(2))
    number, refused = folder.newest()
    assert number == 1
    assert len(refused) == 1
    assert refused[0].startswith("checkpoint 2 is passed over: ")


def test_a_link_that_leads_to_itself_is_no_checkpoint(tmp_path: Path) -> None:
    folder = good(tmp_path)
    folder.place(2).mkdir()
    loop(folder.place(2))
    folder.place(3).symlink_to(folder.place(3))
    assert folder.newest() == (1, [])


def put(folder: FolderStore, number: int, contents: dict[str, bytes], **facts: Any) -> None:
    folder.save(number, {name: [data] for name, data in contents.items()}, finite=True, **facts)


WHOLE = save({"w": torch.ones(3)})


WORKER = {"entry": [1, 2, ["AAAA"]], "counts": {}}


UNSOUND: dict[str, tuple[dict[str, bytes], dict[str, Any]]] = {
    "no model": ({"other.safetensors": WHOLE}, {}),
    "a model that is none": ({MODEL: b"nonsense"}, {}),
    "an optimizer without numbers": ({MODEL: WHOLE, "optimizer.safetensors": WHOLE}, {}),
    "a lead that left nothing": ({MODEL: WHOLE}, {"lead": 3, "numbers": {}}),
    "a worker that is a list": ({MODEL: WHOLE, "worker-00000.json": b"[]"}, {}),
    "a worker of nothing": ({MODEL: WHOLE, "worker-00000.json": b"{}"}, {}),
    "a deep worker": ({MODEL: WHOLE, "worker-00000.json": b"[" * DEEP}, {}),
    **{
        f"a worker's {name}": ({MODEL: WHOLE, "worker-00000.json": json.dumps({**WORKER, **odd}).encode()}, {})
        for name, odd in {
            "entry": {"entry": [-1, 2, ["AAAA"]]},
            "generators": {"entry": [1, 2, ["no base 64"]]},
            "random state": {"rng": [3, [1, 2, 3], None]},
            "counts": {"counts": {"a": -1}},
            "scales": {"scales": {"a": "x"}},
        }.items()
    },
}


@pytest.mark.parametrize("what", UNSOUND)
def test_what_its_own_checksums_are_right_about_is_passed_over_where_nobody_could_go_on_from_it(
    tmp_path: Path, what: str
) -> None:
    contents, facts = UNSOUND[what]
    folder = good(tmp_path)
    put(folder, 2, contents, **facts)
    start, refused = find(resumed(tmp_path, 9, "auto"))
    assert (start.number, len(refused)) == (1, 1)
    assert refused[0].startswith("checkpoint 2 is passed over: ")
    with pytest.raises(ConfigError, match="--resume"):
        find(resumed(tmp_path / "other", 9, str(folder.place(2))))


def test_of_many_only_some_are_named(tmp_path: Path) -> None:
    folder = good(tmp_path)
    for number in range(2, 40):
        folder.place(number).mkdir()
        (folder.place(number) / MANIFEST).write_bytes(NONSENSE["infinity"])
    start, refused = find(resumed(tmp_path, 9, "auto"))
    assert start.number == 1
    assert len(refused) == 9
    assert refused[-1] == "30 more checkpoints are passed over"


def test_a_folder_that_is_a_link_is_rotated_without_what_it_leads_to(tmp_path: Path) -> None:
    others, folder = good(tmp_path / "others"), good(tmp_path / "mine")
    folder.place(2).symlink_to(others.place(1))
    put(folder, 3, {MODEL: WHOLE})
    folder.rotate(1)
    assert folder.numbers() == [3]
    assert others.newest() == (1, [])
