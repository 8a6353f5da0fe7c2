"""A run that is taken up again ends where it would have ended in one go."""

from __future__ import annotations

import dataclasses
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file

from paceline.checkpoint.folder_store import FolderStore
from paceline.checkpoint.manifest import Manifest
from paceline.core.errors import ConfigError
from paceline.launch.local.train import new_folder
from paceline.observe.runs.summary import SUMMARY, write_summary
from paceline.runtime.checkpointing.resume import ResumePoint, find, identity, read_weights
from paceline.runtime.supervisor.phase_deadlines import RunFailed
from paceline.runtime.worker.steps.local_work import LocalWork
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, one_process, resumed, saved

STEPS = 40  # an epoch of two workers is 23: the short last batch and the reshuffle come after the interruption


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "momentum": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
    "adam": {"name": "adam", "lr": 0.002},
}


FABRICS: dict[str, dict[str, Any]] = {
    "one server": {"servers": 1},
    "two servers in slices": {"servers": 2, "cluster": {"slice_mb": 0.002}},
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("fabric", FABRICS)
def test_bsp_goes_on_just_where_it_was(threads: Runner, out: Path, fabric: str, optimizer: str) -> None:
    how = {"optimizer": OPTIMIZERS[optimizer], "schedule": {"name": "step", "every": 0.5}, **FABRICS[fabric]}
    threads(resumed(out, 15, **how))
    again = resumed(out, STEPS, "auto", **how)
    start, refused = find(again)
    assert (start.exact, start.version, refused) == (True, 15, [])
    summary = threads(again)
    assert [worker.steps for worker in summary.workers] == [STEPS] * 2
    assert_same(saved(again), one_process(again, STEPS))


@pytest.mark.parametrize("servers", [1, 2])
def test_a_checkpoint_from_the_middle_of_a_run_is_one_round_of_everybody(
    threads: Runner, out: Path, servers: int
) -> None:
    how: dict[str, Any] = {"optimizer": OPTIMIZERS["momentum"], "servers": servers, "cluster": {"step_ms": 8.0}}
    often = {"every": 0.01, "keep_last": 100}
    threads(config_for(out, steps=STEPS, checkpoint=often, evaluation={"every": 0.01}, **how))
    folder = FolderStore(out / "checkpoints")
    versions = {number: folder.verify(number).facts["version"] for number in folder.numbers()}
    middle = next(number for number, version in versions.items() if 0 < version < STEPS)
    again = resumed(out.parent / "again", STEPS, str(folder.place(middle)), **how)
    assert find(again)[0].version == versions[middle]
    threads(again)
    assert_same(saved(again), one_process(again, STEPS))


def test_another_number_of_workers_and_servers_goes_on_from_the_same_numbers(threads: Runner, out: Path) -> None:
    threads(resumed(out, 15, optimizer=OPTIMIZERS["adam"], servers=2))
    before = saved(resumed(out, 15))
    again = resumed(out, 8, "auto", workers=3, servers=3, optimizer=OPTIMIZERS["adam"])
    start, _ = find(again)
    assert not start.exact
    assert "begin anew" in start.note
    assert start.samples == 15 * 2 * 32
    summary = threads(again)  # each of three has made ten of the thirty batches: more than it may make
    assert summary.samples >= 15 * 2 * 32
    assert list(saved(again)) == list(before)


def test_a_damaged_checkpoint_is_passed_over_and_named(threads: Runner, out: Path) -> None:
    threads(resumed(out, 5))
    threads(resumed(out, 9, "auto"))
    folder = FolderStore(out / "checkpoints")
    newest = folder.place(folder.numbers()[-1]) / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    start, refused = find(resumed(out, 12, "auto"))
    assert start.version == 5
    assert len(refused) == 1
    assert "model.safetensors" in refused[0]


MIXED = ("model.safetensors", "optimizer.safetensors", "worker-00001.json", "worker-00000.safetensors")


def test_files_of_two_checkpoints_under_a_manifest_that_fits_are_none(threads: Runner, out: Path) -> None:
    how: dict[str, Any] = {"optimizer": OPTIMIZERS["momentum"]}
    threads(resumed(out, 5, **how))
    threads(resumed(out, 9, "auto", **how))
    folder = FolderStore(out / "checkpoints")
    older, newer = folder.numbers()[0], folder.numbers()[-1]
    whole = folder.manifest(newer)
    loaded = {entry.name: folder.load(newer, entry) for entry in whole.files}
    others = {entry.name: folder.load(older, entry) for entry in folder.manifest(older).files}
    mixed = [name for name in MIXED if name in loaded]
    assert len(mixed) >= 3
    for number, name in enumerate(mixed, newer + 1):
        contents = {**loaded, name: others[name]}
        folder.save(number, {name: [data] for name, data in contents.items()}, finite=True, **whole.facts)
    start, refused = find(resumed(out, 12, "auto", **how))
    assert (start.number, start.version) == (newer, 9)
    assert len(refused) == len(mixed)
    for line, name in zip(refused, reversed(mixed), strict=True):
        assert line.endswith(f"{name}: it is of another checkpoint than the manifest")


def test_with_damaged_ones_only_nothing_goes_on_and_each_is_named(threads: Runner, out: Path) -> None:
    threads(resumed(out, 5))
    folder = FolderStore(out / "checkpoints")
    for number in folder.numbers():
        (folder.place(number) / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="model.safetensors"):
        find(resumed(out, 9, str(out)))


def header(text: bytes, length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        header(b"{}", (1 << 63) + 7),
        header(b"{", 100_000_000),
        header(b"[" * 100_000),
        header(b'{"a":' * 100_000),
        header(b'{"bias":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'),
        header(b'{"bias":{"dtype":"F32","shape":[3],"data_offsets":[12,0]}}') + bytes(12),
        header(b'{"bias":{"dtype":"F32","shape":[-3],"data_offsets":[0,12]}}') + bytes(12),
        header(b'{"bias":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,12]}}') + bytes(12),
        header(b'{"bias":{"dtype":"F999","shape":[3],"data_offsets":[0,12]}}') + bytes(12),
        header(
            b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}'
        )
        + bytes(12),
    ],
)
def test_headers_that_lie_are_refused_without_memory_for_what_they_promise(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "evil.safetensors"
    path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match="evil.safetensors"):
        read_weights(str(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_without_any_checkpoint_auto_begins_and_a_path_is_refused(out: Path) -> None:
    assert find(resumed(out, 5, "auto"))[0].path == ""
    with pytest.raises(ConfigError, match="no checkpoint to go on from"):
        find(resumed(out, 5, str(out)))


def test_weights_from_a_file_are_where_a_run_begins(threads: Runner, out: Path, tmp_path: Path) -> None:
    first = config_for(out, steps=5)
    threads(first)
    second = config_for(
        tmp_path / "b", steps=1, optimizer={"lr": 0.0}, checkpoint={"init_from": str(out / "model.safetensors")}
    )
    threads(second)
    assert_same(saved(second), saved(first))


def test_weights_of_another_model_are_refused_by_name(threads: Runner, out: Path) -> None:
    path = out.parent / "other.safetensors"
    save_file({"bias": torch.zeros(3)}, path)
    with pytest.raises(RunFailed, match="which the model has"):
        threads(config_for(out, steps=1, checkpoint={"init_from": str(path)}))


@pytest.mark.parametrize(("rule", "exact"), [("trimmed", True), ("centred", False)])
def test_what_goes_out_from_the_round_before_does_not_go_on_just_where_it_was(
    out: Path, rule: str, exact: bool
) -> None:
    wanted = resumed(out, 15, workers=4, robust={"rule": rule})
    facts = {"identity": identity(wanted), "lock_step": True, "aligned": True}
    assert ResumePoint(wanted, FolderStore(out), 1, Manifest(files=(), finite=True, facts=facts)).exact == exact
    other = resumed(out, 15, workers=4, robust={"rule": "median"})
    assert not ResumePoint(other, FolderStore(out), 1, Manifest(files=(), finite=True, facts=facts)).same


@pytest.mark.parametrize("name", ["12345", "run"])
def test_a_folder_may_be_called_by_a_number(tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    assert find(resumed(out, 5, "auto"))[0].path == ""
    folder = FolderStore(out / "checkpoints")
    folder.save(7, {"model.safetensors": [save({"w": torch.ones(1)})]}, finite=True)
    for wanted in ("auto", str(out), str(out / "checkpoints"), str(folder.place(7))):
        assert find(resumed(out, 5, wanted))[0].number == 7


def test_a_run_that_died_before_its_first_checkpoint_begins_anew_by_the_same_command(
    threads: Runner, out: Path
) -> None:
    out.mkdir()
    (out / "trace.jsonl").write_text("{}\n")
    again = resumed(out, 3, "auto")
    with pytest.raises(ConfigError, match="already holds a run"):
        new_folder(resumed(out, 3))
    assert [line for line in find(new_folder(again))[1] if "begins anew" in line] != []
    assert [worker.steps for worker in threads(new_folder(again)).workers] == [3, 3]
    assert (out / "trace.1.jsonl").read_text() == "{}\n"
    assert find(new_folder(again))[0].number == 1


def test_a_run_that_is_over_and_kept_no_checkpoint_is_not_written_over(threads: Runner, out: Path) -> None:
    summary = threads(config_for(out, steps=2, checkpoint={"every": 0.0}))
    write_summary(summary, out / SUMMARY)
    with pytest.raises(ConfigError, match=r"is over \(steps\) and has kept no checkpoint; name another --out"):
        find(resumed(out, 3, "auto"))
    write_summary(
        dataclasses.replace(summary, reason="failed: lost worker 1: it left"), out / SUMMARY
    )  # as of a run that can be started again
    assert "begins anew" in find(resumed(out, 3, "auto"))[1][0]
    write_summary(
        dataclasses.replace(summary, reason="interrupted by SIGTERM"), out / SUMMARY
    )  # such as by a queue that starts it again
    assert "begins anew" in find(resumed(out, 3, "auto"))[1][0]


def test_a_run_that_goes_on_knows_at_once_how_many_samples_are_behind_it(
    threads: Runner, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"scheme": "localsgd", "servers": 0, "localsgd": {"tau": 5}}
    threads(resumed(out, 5, **how))
    real, seen = LocalWork.apply, list[int]()

    def apply(steps: LocalWork, samples_seen: int) -> None:
        seen.append(samples_seen)
        real(steps, samples_seen)

    monkeypatch.setattr(LocalWork, "apply", apply)
    threads(resumed(out, 10, "auto", **how))
    assert len(seen) == 10
    assert min(seen) == 5 * 2 * 32
