"""`paceline checkpoint`: what is listed, and whether there is one to go on from."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint.folder_store import FolderStore
from paceline.cli.main import main
from tests.checkpoint.saving import save
from tests.cli.conftest import Capture, refused_here


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    """The store of a run in `tmp_path`, with three checkpoints: a good one, a damaged one, one with NaN."""
    made = FolderStore(tmp_path / "checkpoints")
    save(made, 1, bytes(500_000), samples=6400, accuracy=0.5)
    save(made, 2, bytes(500_000), samples=12800, accuracy=0.75)
    save(made, 3, bytes(500_000), finite=False, samples=19200)
    damaged = next((tmp_path / "checkpoints" / made.name(2)).glob("a.*"))
    damaged.write_bytes(b"\1" + damaged.read_bytes()[1:])
    return made


def test_each_has_a_line_with_its_samples_accuracy_size_and_health(
    store: FolderStore, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["checkpoint", "list", str(tmp_path)]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines.keys() == {store.name(number) for number in (1, 2, 3)}
    assert lines[store.name(1)].startswith("6,400 samples, test accuracy 0.500, 1.0 MB, healthy")
    assert lines[store.name(2)].startswith("damaged: ")
    assert lines[store.name(3)] == "19,200 samples, 1.0 MB, not finite"


def test_the_folder_of_checkpoints_is_as_good_as_that_of_the_run(
    store: FolderStore, tmp_path: Path, capsys: Capture
) -> None:
    outputs = []
    for place in (tmp_path, tmp_path / "checkpoints"):
        assert main(["checkpoint", "verify", str(place)]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]


def test_where_no_run_could_go_on_verify_says_so_by_its_exit_code(store: FolderStore, tmp_path: Path) -> None:
    good = next((tmp_path / "checkpoints" / store.name(1)).glob("a.*"))
    good.write_bytes(b"")
    assert main(["checkpoint", "verify", str(tmp_path)]) == 1
    assert main(["checkpoint", "list", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list", "empty"], "empty has no checkpoints: name the folder that --out of a run named"),
        (["verify", "redis://127.0.0.1:6379/0"], "names no run: give redis://host:port/db/RUN"),
        (["delete", "empty"], "delete"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert told in refused_here(capsys, "checkpoint", *words)
