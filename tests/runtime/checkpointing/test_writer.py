"""What the evaluator keeps of slices that differ, and what it does without a party that does not answer."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.checkpoint.folder_store import FolderStore
from paceline.core.coordination import control_messages as control
from paceline.core.coordination.loop_messages import SharesLeft
from paceline.core.coordination.party import Party
from paceline.core.errors import PeerLost, TimedOut, Undone
from paceline.core.fault_tolerance.replication import SliceState
from paceline.core.fault_tolerance.snapshots import FORGET
from paceline.core.samples.shares_kept import KeptShare
from paceline.core.sharding import NOWHERE, lay_out
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.flat import Flat
from paceline.live.node.published_state import STATE, PublishedState
from paceline.runtime.checkpointing.resume import ResumePoint
from paceline.runtime.checkpointing.slice_capture import NOTHING, WEIGHTS, state_of
from paceline.runtime.checkpointing.writer import EPOCHS_APART, CheckpointWriter, drawn_by_all, shares_moved, shares_of
from paceline.runtime.worker.pace import Pace
from tests.runtime.checkpointing.slices import Node, config, keeper, session_of, trained
from tests.runtime.conftest import Runner
from tests.runtime.one_process import assert_same, config_for, saved

WORKERS, LENGTH = 3, 6


SAMPLES = (32, 17, 32)


RECIPE = OptimizerRecipe(name="sgd", lr=0.1, momentum=0.9)


def test_slices_of_two_captures_are_no_checkpoint_and_the_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = lay_out(LENGTH, 2)
    node = Node([state_of(*trained(part, (0, 1, 2))) for part in layout.slices])
    keeping = keeper(tmp_path, node, layout)
    keeping.save(0.5)
    assert FolderStore(tmp_path / "checkpoints").numbers() == [1]
    node.deaf = {1}
    keeping.save(0.6)
    assert FolderStore(tmp_path / "checkpoints").numbers() == [1]
    assert "a checkpoint was not saved, the run goes on: its slices are of captures 1, 2" in capsys.readouterr().err
    node.deaf = set()
    keeping.save(0.7)
    assert FolderStore(tmp_path / "checkpoints").numbers() == [1, 2]
    assert "capture" not in FolderStore(tmp_path / "checkpoints").manifest(2).facts


@pytest.mark.parametrize("error", [PeerLost("lost worker 0"), TimedOut("no answer of worker 0 within 60 s")])
def test_a_worker_that_is_lost_or_slow_while_its_model_is_read_costs_the_checkpoint_alone(
    tmp_path: Path, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    keeper(tmp_path, Node([], error), NOWHERE).save(0.5)
    assert ("the run goes on" in capsys.readouterr().err) == isinstance(error, TimedOut)


class LongRound(Node):
    """Its servers have kept their slices when the round `ends`; or one of them is `replaced` meanwhile."""

    def __init__(self, states: Sequence[SliceState]) -> None:
        super().__init__(states)
        self.ends, self.replaced = threading.Event(), False

    def read_several(self, who: Party, wanted: Sequence[tuple[str, int]]) -> list[PublishedState]:
        assert self.ends.wait(60.0)
        if self.replaced:
            raise Undone(f"{who} no longer publishes the state that it had kept")
        return super().read_several(who, wanted)


def long_round(out: Path) -> tuple[LongRound, CheckpointWriter, Callable[[], list[int]]]:
    layout = lay_out(LENGTH, 1)
    node = LongRound([state_of(*trained(layout.slices[0], (0, 1, 2)))])
    return node, keeper(out, node, layout), FolderStore(out / "checkpoints").numbers


def test_nobody_waits_while_a_checkpoint_waits_for_the_end_of_a_round(tmp_path: Path) -> None:
    node, keeping, numbers = long_round(tmp_path)
    captured = threading.Event()
    keeping.asked = True
    keeping.begin(captured.set)
    keeping.write(0.3)
    assert numbers() == []
    assert not keeping.due
    node.ends.set()
    assert captured.wait(60.0)
    keeping.write(0.4)
    assert numbers() == [1]
    assert FolderStore(tmp_path / "checkpoints").manifest(1).facts["accuracy"] == 0.4, "of the newest evaluation"
    assert not keeping.due
    keeping.write(0.5)
    assert numbers() == [1], "it is written once"


def test_a_checkpoint_that_is_asked_for_while_one_is_captured_is_another_one(tmp_path: Path) -> None:
    node, keeping, numbers = long_round(tmp_path)
    keeping.begin()
    keeping.asked = True
    node.ends.set()
    keeping.finish(0.5)
    assert numbers() == [1]
    assert keeping.due
    keeping.begin()
    keeping.finish(0.5)
    assert numbers() == [1, 2]
    assert not keeping.due


def test_a_checkpoint_that_was_asked_for_and_is_undone_is_still_due(tmp_path: Path) -> None:
    node, keeping, numbers = long_round(tmp_path)
    keeping.asked = node.replaced = True
    keeping.begin()
    node.ends.set()
    keeping.finish(0.5)
    assert numbers() == []
    assert keeping.due


def test_the_last_checkpoint_comes_after_the_one_that_is_captured(tmp_path: Path) -> None:
    node, keeping, numbers = long_round(tmp_path)
    keeping.begin()
    node.ends.set()
    keeping.save(0.5)
    assert numbers() == [1, 2]


class Workers(Node):
    """Each shows where it stands and one vector of its own, until it is `lost`; those of `left` show their last."""

    def __init__(
        self,
        states: Sequence[SliceState],
        clocks: Sequence[int],
        model: Sequence[str],
        lost: int,
        left: Sequence[int] = (),
    ) -> None:
        super().__init__(states)
        self.clocks, self.model, self.lost, self.left = clocks, model, lost, left

    def read_published(self, to: Any, what: str) -> PublishedState:
        name = what.rpartition("/")[2]
        if not isinstance(to, int):
            return super().read_published(to, what)
        if name == STATE:
            clock, names = self.clocks[to], [*self.model, "buffers"]
            entries = {at: [at, 32 * at, ["AAAA"]] for at in (clock - 1, clock)}
            more = {"model": self.model, "numbers": {}, "lock_step": True, "counts": {}, "common": {}}
            of = {"vectors": names, "clock": clock, "entries": entries, **(more if self.model else {"counts": {}})}
            of |= {"whole": False} if to in self.left else {}
            return PublishedState(v=NOTHING, facts=json.dumps(of))
        if to == self.lost and name == "buffers":
            raise PeerLost(f"worker {to}")
        return PublishedState(v=Flat.wrap(torch.full((LENGTH,), float(to))))


def test_a_worker_that_is_lost_while_it_is_read_is_not_in_the_checkpoint_which_goes_on(tmp_path: Path) -> None:
    layout = lay_out(LENGTH, 2)
    states = [state_of(*trained(part, (0, 1, 2))) for part in layout.slices]
    for lost, aligned in ((None, True), (1, False)):
        keeper(tmp_path, Workers(states, (2, 2, 2), (), -1 if lost is None else lost), layout).save(0.5)
        folder = FolderStore(tmp_path / "checkpoints")
        number, _ = folder.newest()
        start = ResumePoint(config(tmp_path), folder, number or 0, folder.manifest(number or 0))
        assert start.facts["aligned"] == start.exact == aligned
        assert [rank for rank in range(WORKERS) if start.memories(rank) is None] == [rank for rank in (1,) if lost]


class Returning(Workers):
    """Worker 2 is lost and comes back between the question and the answer of worker 0."""

    def __init__(self, states: Sequence[SliceState]) -> None:
        super().__init__(states, (2, 2, 2), (), -1)
        self.asked: set[int] = set()  # in their present incarnations
        self.there = {0, 1, 2}
        self.session: Any = None

    def tell(self, rank: int, message: control.Capture) -> bool:
        if rank in self.there:
            (self.asked.discard if message.version == FORGET else self.asked.add)(rank)
        return rank in self.there

    def come_back(self) -> None:
        self.asked.discard(2)
        self.session.callbacks.on_worker_joined(2)

    def read_published(self, to: Any, what: str) -> PublishedState:
        if what.endswith(STATE) and isinstance(to, int):
            if to == 0:
                self.come_back()
            assert to in self.asked, f"worker {to} would be waited for, for ever"
        return super().read_published(to, what)


@pytest.mark.parametrize("reached", [True, False])
def test_a_worker_that_comes_back_while_a_checkpoint_is_taken_is_asked_or_not_waited_for(
    tmp_path: Path, reached: bool
) -> None:
    layout = lay_out(LENGTH, 2)
    node = Returning([state_of(*trained(part, (0, 1, 2))) for part in layout.slices])
    node.session = session_of(node)
    node.session.tell_worker = node.tell
    keeping = keeper(tmp_path, node, layout, node.session)
    node.come_back()
    assert node.asked == set(), "no checkpoint is being taken"
    if not reached:
        node.there = {0, 1}
    keeping.save(0.5)
    folder = FolderStore(tmp_path / "checkpoints")
    start = ResumePoint(config(tmp_path), folder, 1, folder.verify(1))
    assert [rank for rank in range(WORKERS) if start.memories(rank) is not None] == [0, 1, *([2] if reached else [])]
    assert node.asked == set()


def test_phases_are_kept_while_they_last_though_their_servers_count_no_versions(threads: Runner, out: Path) -> None:
    often = {"every": 0.01, "keep_last": 100}
    phases = {"phases": "bsp until 20 steps; asp"}
    config = config_for(
        out,
        scheme="hybrid",
        steps=150,
        checkpoint=often,
        evaluation={"every": 0.01},
        cluster={"step_ms": 8.0},
        hybrid=phases,
    )
    threads(config)
    folder = FolderStore(out / "checkpoints")
    samples = [folder.verify(number).facts["samples"] for number in folder.numbers()]
    assert any(0 < of < samples[-1] for of in samples)


def test_without_the_one_that_speaks_for_all_there_is_no_checkpoint(tmp_path: Path) -> None:
    for lost in range(WORKERS):
        keeper(tmp_path / str(lost), Workers([], (2, 2, 2), (WEIGHTS,), lost), NOWHERE).save(0.5)
    kept_in = [out for out in range(WORKERS) if FolderStore(tmp_path / str(out) / "checkpoints").numbers()]
    assert kept_in == [1, 2]


def test_a_worker_that_has_left_does_not_speak_for_those_who_go_on(tmp_path: Path) -> None:
    cases: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((2, 9, 9), (), 1),
        ((8, 9, 9), (), 0),
        ((2, 3, 9), (), 2),
        ((8, 9, 9), (0,), 1),
        ((7, 8, 9), (0, 1, 2), 2),
        ((9, 9, 9), (0, 1), 0),
    ]
    for case, (clocks, left, lead) in enumerate(cases):
        out = tmp_path / str(case)
        keeper(out, Workers([], clocks, (WEIGHTS,), -1, left), NOWHERE).save(0.5)
        folder = FolderStore(out / "checkpoints")
        start = ResumePoint(config(out, 0), folder, 1, folder.verify(1))
        assert (start.facts["lead"], start.facts["version"]) == (lead, clocks[lead])
        assert start.tensors("model.safetensors")["weight"].flatten().tolist() == [float(lead)] * LENGTH


class Counting(Workers):
    """Each has trained another number of samples, and takes the others to have trained as many."""

    def read_published(self, to: Any, what: str) -> PublishedState:
        shown = super().read_published(to, what)
        if not what.endswith(STATE):
            return shown
        of = json.loads(shown.facts)
        of["entries"] = {at: [*entry, SAMPLES[to]] for at, entry in of["entries"].items()}
        of |= {"numbers": {"samples_seen": 3.0 * SAMPLES[to]}, "common": {"samples_seen": 3 * SAMPLES[to]}}
        return PublishedState(v=NOTHING, facts=json.dumps(of))


def test_where_no_exchange_counts_the_samples_of_all_those_of_each_worker_are_added(tmp_path: Path) -> None:
    counted = {}
    for scheme in ("bsp", "sgp"):
        out = tmp_path / scheme
        keeper(out, Counting([], (2, 2, 2), (WEIGHTS,), -1), NOWHERE, scheme=scheme).save(0.5)
        counted[scheme] = FolderStore(out / "checkpoints").verify(1).facts["samples"]
    assert counted == {"bsp": 3 * SAMPLES[0], "sgp": sum(SAMPLES)}


def test_the_model_that_a_run_ends_with_is_that_of_those_who_stayed(
    threads: Runner, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, closes, loaded = Pace.step, Pace.close, dict[int, torch.Tensor]()

    def step(pace: Pace, samples: int | None = None) -> None:
        steps(pace, samples)
        if pace.rank == 0 and pace.steps == 3:
            pace._worker.run.session.notice = "SIGTERM"

    def close(pace: Pace) -> None:
        closes(pace)
        loaded[pace.rank] = torch.cat(
            [v.detach().flatten() for v in pace._worker.model.flat.module.parameters()]
        ).clone()

    monkeypatch.setattr(Pace, "step", step)
    monkeypatch.setattr(Pace, "close", close)
    run = config_for(out, steps=12, workers=3, servers=0, optimizer={"momentum": 0.9})
    summary = threads(run)
    assert [worker.steps for worker in summary.workers] == [3, 12, 12]
    folder = FolderStore(out / "checkpoints")
    number, final = folder.numbers()[-1], saved(run)
    of_checkpoint = ResumePoint(run, folder, number, folder.verify(number)).tensors("model.safetensors")
    assert_same({name: of_checkpoint[name] for name in final}, final)
    assert torch.equal(torch.cat([v.flatten() for v in final.values()]), loaded[2])


def test_a_gradient_that_was_computed_while_the_servers_went_back_is_not_counted(
    threads: Runner, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, met = Pace.step, dict[tuple[int, int], tuple[int, int]]()

    def step(pace: Pace, samples: int | None = None) -> None:
        if pace.rank == 0 and pace.steps == 3:
            pace._worker.run.node.go_back(pace._worker.run.node.server_view, rolled_back=True)
        steps(pace, samples)
        role: Any = pace._worker.run.node.role
        met[pace.rank, pace.steps] = (pace._worker.positions._met, role.clock)

    monkeypatch.setattr(Pace, "step", step)
    threads(config_for(out, steps=6, checkpoint={"every": 0.0}))
    assert [met[0, at] for at in range(1, 6)] == [(at, at) for at in (1, 2, 3, 3, 4)]
    assert [met[1, at] for at in range(1, 6)] == [(at, at) for at in range(1, 6)]


def test_what_the_disk_refuses_takes_no_number_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = FolderStore(tmp_path / "store")
    monkeypatch.setattr("paceline.runtime.checkpointing.writer.store_of", lambda config, secrets: elsewhere)
    node = Workers([], (2, 2, 2), (WEIGHTS,), -1)
    keeping = keeper(tmp_path / "run", node, NOWHERE)
    keeping.save(0.5)
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "aside")
    (tmp_path / "run" / "checkpoints").write_text("no folder can be made here")
    for _ in range(2):
        keeping.save(0.5)
    assert elsewhere.numbers() == [1, 2, 3]
    monkeypatch.setattr(FolderStore, "numbers", lambda self: raises(OSError(5, "Input/output error")))
    keeping.save(0.5)
    monkeypatch.undo()
    assert elsewhere.numbers() == [1, 2, 3, 4]


def raises(error: Exception) -> Any:
    raise error


def test_a_store_that_hangs_is_waited_for_once_and_the_folder_has_every_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("redis", reason="pip install 'paceline[redis]'")
    monkeypatch.setattr("paceline.checkpoint.redis_store.TIMEOUT_S", 0.2)
    layout = lay_out(LENGTH, 1)
    node = Node([state_of(*trained(layout.slices[0], (0, 1, 2)))])
    with socket.create_server(("127.0.0.1", 0)) as silent:  # callers wait in its queue, and nobody answers

        def callers() -> int:
            silent.setblocking(False)
            for count in itertools.count():
                try:
                    silent.accept()[0].close()
                except BlockingIOError:
                    return count
            raise AssertionError

        keep = keeper(tmp_path, node, layout, store=f"redis://127.0.0.1:{silent.getsockname()[1]}/0/a")
        asked = []
        for rest_is_over in (False, False, True, False):
            if rest_is_over:
                keep._asks_store_at = time.monotonic()
            keep.save(0.5)
            asked.append(callers())
    assert asked == [1, 0, 1, 0], "once, then again when 30 s are over"
    assert FolderStore(tmp_path / "checkpoints").numbers() == [2, 3, 4], "the last three"
    lines = capsys.readouterr().err.splitlines()
    assert ["timed out after 0.2 s" in line for line in lines] == [True, False, True, False]


@pytest.mark.parametrize(
    ("entries", "moved"),
    [
        ([[2, 64, [], 64, None], [2, 64, [], 64, None]], False),
        ([[2, 64, []], [2, 64, []]], False),  # of an older version
        ([[2, 64, [], 70, None], [2, 64, [], 64, None]], True),
        ([[2, 64, [], 64, None]], True),
        ([[2, 0, [], 64, None]], False),  # batches of the loop's own
    ],
)
def test_shares_have_moved_where_one_trained_of_anothers_or_has_left(entries: list[list[Any]], moved: bool) -> None:
    assert shares_moved(entries, 2) is moved


def entry(position: int, *pieces: list[int], size: int = 10) -> list[Any]:
    return [2, position, [], position, None, [size, list(pieces)]]


def test_where_nobody_has_left_each_worker_goes_on_in_its_share() -> None:
    entries = {0: entry(12, [0, 0, 12, 0]), 1: entry(11, [0, 0, 11, 1])}
    assert shares_of(entries, 2, None) == [KeptShare(12), KeptShare(11)]
    assert shares_of({0: entries[0]}, 2, None) == [], "nobody knows where worker 1 was"
    assert shares_of({0: entries[0], 1: entries[1][:5]}, 2, None) == [], "of an older version"


def test_what_those_that_are_here_and_those_that_are_gone_have_trained_counts() -> None:
    left = SharesLeft(free=((1, 10), (2, 10)), trained=((1, 0, 4), (2, 0, 6), (1, 4, 6)))
    entries = {0: entry(20, [0, 0, 20, 0], [0, 6, 9, 1]), 2: entry(10, [0, 6, 10, 2])}
    kept = [KeptShare(20), KeptShare(20, ((9, 20),)), KeptShare(20, ((10, 20),))]
    assert shares_of(entries, 3, left) == kept
    assert shares_of(entries, 3, SharesLeft(free=((2, 10),), trained=())) == [], "nobody knows where worker 1 was"


def test_of_epochs_that_are_long_over_all_is_trained_of_shares_that_are_free() -> None:
    last = EPOCHS_APART + 2
    left = SharesLeft(free=((1, 10),), trained=((1, 0, 4),))
    entries = {0: entry(10 * last, [0, 0, 10 * last, 0], [last, 10 * last, 10 * last + 3, 1])}
    place, untrained = shares_of(entries, 2, left)[1]
    assert (place, untrained) == (10 * last + 3, ((20, 10 * last),))


# ---- samples of the common queue ---------------------------------------------------------------------------------
def worker_with(dealt: Any) -> dict[str, Any]:
    return {"entry": [1, 5, [], 5, dealt]}


def test_what_all_workers_have_trained_is_known_together() -> None:
    workers = {0: worker_with([10, [[0, 0, 4], [1, 0, 2]]]), 1: worker_with([10, [[0, 6, 10]]])}
    drawn = drawn_by_all(workers, 2, [(0, 4, 5)])
    assert drawn is not None
    assert list(drawn) == [(0, 0, 5), (0, 6, 10), (1, 0, 2)]


@pytest.mark.parametrize(
    "dealt",
    [None, [12, [[0, 0, 4]]], [10, [[EPOCHS_APART + 9, 0, 4]]], [10, []], [10, [[2**60, 0, 4]]], [10, [["0", 0]]], 7],
    ids=["not known", "other data", "far ahead", "nothing", "no such epoch", "no piece", "no account"],
)
def test_it_is_not_known_where_one_does_not_know_or_they_are_far_apart(dealt: Any) -> None:
    ahead = [10, [[EPOCHS_APART + 1, 0, 4]]]
    assert drawn_by_all({0: worker_with(ahead), 1: worker_with(dealt)}, 2, ()) is None
    assert drawn_by_all({0: worker_with(ahead)}, 2, ()) is None  # one has left


def test_epochs_that_nobody_logs_any_more_are_trained_to_their_end() -> None:
    last = EPOCHS_APART + 2
    workers = {0: worker_with([10, [[last, 0, 4]]]), 1: worker_with([10, [[last, 4, 6]]])}
    drawn = drawn_by_all(workers, 2, ())
    assert drawn is not None
    assert list(drawn) == [(0, 0, 10), (1, 0, 10), (last, 0, 6)]
