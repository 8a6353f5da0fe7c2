"""Real processes, really killed: whatever ends a run ends all of it, at once, and says why."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.runtime.checkpointing.resume import check_weights
from paceline.runtime.replay.run_replay import coordinator_recording
from tests.launch.forked_cli import Warm
from tests.launch.process_tree import alive, comm, descendants, within

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")

BOUND_SECONDS = 5.0
START_SECONDS = 90.0


class Run:
    """A `paceline train` that would take minutes, up and training."""

    def __init__(self, warm: Warm, out: Path, *options: str, draws: bool = False) -> None:
        self.out = out
        epochs = [] if "--epochs" in options else ["--epochs", "0"]
        words = ["train", "--out", str(out), *epochs, *([] if "--seconds" in options else ["--seconds", "300"])]
        words += ["--workers", "3", "--slowdown", "1,1,4", "--step-ms", "10", *options]
        self.process = warm.paceline(*words, draws=draws)
        self.errors = ""
        self._training = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._training.wait(START_SECONDS), self.errors
        self.parties = self._find()
        self.everybody = [self.process.pid, *descendants(self.process.pid)]

    def _read(self) -> None:
        for line in self.process.stderr:
            self.errors += line
            if line.startswith("["):  # a look at the run, after the lines that say how it is set up
                self._training.set()
        self._training.set()

    def _find(self) -> dict[str, int]:
        """Pid by party, from the names the processes give themselves."""
        names = {pid: comm(pid) for pid in descendants(self.process.pid)}
        return {name.removeprefix("pace "): pid for pid, name in names.items() if name.startswith("pace ")}

    def ends(self) -> float:
        """Wait for the end; seconds until nobody is left."""
        began = time.monotonic()
        self.process.wait(BOUND_SECONDS + 5)
        while any(map(alive, self.everybody)) and time.monotonic() < began + BOUND_SECONDS + 5:
            threading.Event().wait(0.02)
        self._reader.join(5)
        return time.monotonic() - began

    def close(self) -> None:
        for pid in self.everybody:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(10)
        self._reader.join(10)  # it may be at the last lines
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def train(warm: Warm, tmp_path: Path) -> Callable[..., Run]:
    runs: list[Run] = []

    def start(*options: str, draws: bool = False) -> Run:
        runs.append(Run(warm, tmp_path / "run", *options, draws=draws))
        return runs[-1]

    yield start  # type: ignore[misc]
    for run in runs:
        run.close()


@pytest.mark.parametrize(
    ("victim", "options"),
    [
        ("worker 1", ["--scheme", "bsp", "--servers", "0"]),
        ("worker 2", ["--scheme", "esync", "--servers", "0"]),
        ("server 0", ["--scheme", "asp", "--snapshot-every", "0"]),
        ("server 0", ["--scheme", "esync"]),
        ("worker 0", ["--scheme", "gosgd", "--servers", "0"]),
    ],
)
def test_kill_9_of_any_party_ends_the_run_within_5_s_and_names_it(
    train: Callable[..., Run], victim: str, options: list[str]
) -> None:
    run = train(*options)
    pid = run.parties[victim]
    assert within(START_SECONDS, lambda: '"evaluated"' in (run.out / "trace.jsonl").read_text()), run.errors
    os.kill(pid, signal.SIGKILL)
    assert run.ends() < BOUND_SECONDS
    assert run.process.returncode == 1
    last = run.errors.strip().splitlines()[-1]
    assert last.startswith(f"paceline: {victim} (pid {pid}) was killed by SIGKILL"), run.errors
    assert "Traceback" not in run.errors
    assert json.loads((run.out / "summary.json").read_text())["reason"].startswith(f"failed: {victim} (pid {pid}) was")
    assert last.endswith("; kept: model.safetensors (as evaluated last) and summary.json")
    check_weights(str(run.out / "model.safetensors"))


def ends_well(run: Run) -> None:
    """With the last model, judged, and a summary."""
    assert run.process.wait(60) == 0, run.errors
    check_weights(str(run.out / "model.safetensors"))
    summary = json.loads((run.out / "summary.json").read_text())
    assert summary["reason"] == "seconds"
    lines = map(json.loads, (run.out / "trace.jsonl").read_text().splitlines())
    judged = [line for line in lines if line["kind"] == "evaluated"]
    # The last model. The clock of a later incarnation is behind the run's by as long as it took to hear of the start.
    assert judged[-1]["at"] == pytest.approx(summary["seconds"], abs=0.5)
    assert summary["test_accuracy"] == judged[-1]["accuracy"] > 0.5
    assert "Traceback" not in run.errors


@pytest.mark.parametrize("options", [["--scheme", "ssp"], ["--scheme", "gosgd", "--servers", "0"]], ids=lambda o: o[1])
def test_a_killed_evaluator_is_followed_by_another_one(train: Callable[..., Run], options: list[str]) -> None:
    run = train(*options, "--seconds", "4")
    pid = run.parties["evaluator"]
    os.kill(pid, signal.SIGKILL)
    ends_well(run)
    assert f"evaluator ({socket.gethostname()}, pid {pid}) lost: " in run.errors
    assert "is back: incarnation 2" in run.errors


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
def test_without_its_evaluator_a_run_ends_with_its_last_model(train: Callable[..., Run], killed: bool) -> None:
    """Stopped before the end, and killed in the last phase or left so."""
    run = train("--scheme", "bsp", "--seconds", "4", "--dead-after", "2", "--restarts", "0")
    trace = run.out / "trace.jsonl"
    assert within(30, lambda: '"evaluated"' in trace.read_text()), run.errors
    assert within(30, lambda: last_at(trace) > 3), run.errors
    os.kill(run.parties["evaluator"], signal.SIGSTOP)
    assert within(30, lambda: '"ended"' in trace.read_text()), run.errors
    if killed:
        with contextlib.suppress(ProcessLookupError):  # on a slow machine it has been given up by now
            os.kill(run.parties["evaluator"], signal.SIGKILL)
    ends_well(run)


def last_at(trace: Path) -> float:
    lines = [json.loads(line) for line in trace.read_text().splitlines()[:-1]]
    return max((line["at"] for line in lines), default=0.0)


def test_kill_9_of_a_worker_of_servers_leaves_the_others_at_work(train: Callable[..., Run]) -> None:
    run = train("--scheme", "bsp", "--restarts", "0")
    os.kill(run.parties["worker 1"], signal.SIGKILL)
    assert within(BOUND_SECONDS, lambda: "lost after" in run.errors), run.errors
    assert f"pid {run.parties['worker 1']}) lost after" in run.errors
    assert "2 of 3 continue" in run.errors
    assert all(alive(pid) for name, pid in run.parties.items() if name != "worker 1")
    records = [json.loads(line) for line in (run.out / "trace.jsonl").read_text().splitlines()[:-1]]
    applied = len([record for record in records if record["kind"] == "applied"])

    def goes_on() -> bool:
        lines = (run.out / "trace.jsonl").read_text().splitlines()[:-1]
        return sum('"applied"' in line for line in lines) > applied + 20

    assert within(BOUND_SECONDS, goes_on), run.errors
    run.process.send_signal(signal.SIGINT)
    assert run.ends() < 2 * BOUND_SECONDS
    assert run.process.returncode == 130, run.errors
    assert (run.out / "model.safetensors").exists()


@pytest.mark.parametrize(
    "options",
    [["--scheme", "bsp", "--servers", "2"], ["--scheme", "esync", "--allreduce", "servers"]],
    ids=lambda o: o[1],
)
def test_a_killed_worker_comes_back_and_its_samples_are_counted(train: Callable[..., Run], options: list[str]) -> None:
    run = train(*options, "--record")
    for incarnation in (2, 3):
        (victim,) = (pid for pid in descendants(run.process.pid) if comm(pid) == "pace worker 1")
        os.kill(victim, signal.SIGKILL)
        assert within(
            2 * BOUND_SECONDS,
            lambda incarnation=incarnation: f"is back: incarnation {incarnation}; 3 of 3 train" in run.errors,
        ), (  # type: ignore[misc]
            run.errors
        )
    assert all(alive(pid) for name, pid in run.parties.items() if name != "worker 1")
    assert within(2 * BOUND_SECONDS, lambda: steps_since_return(run.out, 1) >= 3), run.errors
    run.process.send_signal(signal.SIGINT)
    assert run.ends() < 2 * BOUND_SECONDS
    assert run.process.returncode == 130, run.errors
    summary = json.loads((run.out / "summary.json").read_text())
    assert [worker["incarnations"] for worker in summary["workers"]] == [1, 3, 1]
    assert [fault["event"] for fault in summary["faults"]] == ["lost", "returned"] * 2
    assert summary["samples"] == sum(worker["samples"] for worker in summary["workers"])
    assert (
        summary["workers"][1]["steps"] > summary["faults"][-1]["steps"]
    )  # the last incarnation has added to the others
    replayed = list(coordinator_recording(run.out).replay())
    assert [one.recorded.what for one in replayed if not one.equal] == []
    assert [one.recorded.what[:2] for one in replayed].count(["lost", "worker 1"]) >= 2
    records = [json.loads(line) for line in (run.out / "trace.jsonl").read_text().splitlines()]
    returned = [record["at"] for record in records if record.get("event") == "returned"]
    if options[1] == "bsp":  # a mean of all three again
        after = [record["ranks"] for record in records if record["kind"] == "applied" and record["at"] > returned[-1]]
        assert [0, 1, 2] in after


def steps_since_return(out: Path, rank: int) -> int:
    """Steps that a worker has told of since a worker came back last."""
    lines = (out / "trace.jsonl").read_text().splitlines()[:-1]
    back = max((n for n, line in enumerate(lines) if '"event":"returned"' in line), default=len(lines))
    return sum(f'"rank":{rank},"activity":"computing"' in line for line in lines[back:])


def trained(out: Path) -> int:
    """Samples, as far as the workers have told."""
    trace = out / "trace.jsonl"
    lines = trace.read_text().splitlines()[:-1] if trace.exists() else []
    return sum(json.loads(line).get("samples", 0) for line in lines if '"activity":"computing"' in line)


@pytest.mark.parametrize(("scheme", "epochs"), [("asp", 40), ("bsp", 12)])
def test_a_worker_that_is_killed_before_the_end_leaves_its_samples_to_the_others(
    train: Callable[..., Run], scheme: str, epochs: int
) -> None:
    run = train("--scheme", scheme, "--restarts", "0", "--epochs", str(epochs))
    samples = epochs * 1437
    assert within(8 * BOUND_SECONDS, lambda: trained(run.out) > 0.5 * samples), run.errors
    os.kill(run.parties["worker 1"], signal.SIGKILL)
    assert within(8 * BOUND_SECONDS, lambda: run.process.poll() is not None), run.errors
    assert run.process.returncode == 0, run.errors
    summary = json.loads((run.out / "summary.json").read_text())
    assert (summary["reason"], [fault["event"] for fault in summary["faults"]]) == ("epochs", ["lost"])
    if scheme == "asp":
        assert summary["samples"] == samples
        return
    records = [json.loads(line) for line in (run.out / "trace.jsonl").read_text().splitlines()]
    applied = sum(record["samples"] for record in records if record["kind"] == "applied")
    assert samples <= applied < samples + 3  # also what the killed worker had not told any more


def test_a_worker_that_dies_more_often_than_it_is_started_again_stays_away(train: Callable[..., Run]) -> None:
    run = train("--scheme", "bsp", "--restarts", "1")
    for told in ("is back: incarnation 2; 3 of 3 train", "worker 1 is not started again: --restarts 1"):
        (victim,) = (pid for pid in descendants(run.process.pid) if comm(pid) == "pace worker 1")
        os.kill(victim, signal.SIGKILL)
        assert within(2 * BOUND_SECONDS, lambda told=told: told in run.errors), run.errors  # type: ignore[misc]
    threading.Event().wait(1.0)  # in which it would be started again
    assert not [pid for pid in descendants(run.process.pid) if comm(pid) == "pace worker 1"]
    assert all(alive(pid) for name, pid in run.parties.items() if name != "worker 1")
    run.process.send_signal(signal.SIGINT)
    assert run.ends() < 2 * BOUND_SECONDS
    summary = json.loads((run.out / "summary.json").read_text())
    assert [worker["incarnations"] for worker in summary["workers"]] == [1, 2, 1]
    assert [fault["event"] for fault in summary["faults"]] == ["lost", "returned", "lost"]


def whole_epochs(out: Path) -> int:
    """Of leased data, so far."""
    lines = (out / "trace.jsonl").read_text().splitlines()[:-1]
    return max((json.loads(line)["epochs"] for line in lines if '"kind":"leased"' in line), default=0)


@pytest.mark.parametrize("scheme", ["asp", "bsp"])
def test_leased_samples_of_killed_workers_are_done_by_others_and_each_of_an_epoch_once(
    train: Callable[..., Run], scheme: str
) -> None:
    run = train("--scheme", scheme, "--partition", "queue")
    for rank in (0, 1):
        (victim,) = (pid for pid in descendants(run.process.pid) if comm(pid) == f"pace worker {rank}")
        os.kill(victim, signal.SIGKILL)
        assert within(2 * BOUND_SECONDS, lambda rank=rank: f"worker {rank} (" in run.errors), run.errors  # type: ignore[misc]
    so_far = whole_epochs(run.out)
    assert within(START_SECONDS, lambda: whole_epochs(run.out) >= so_far + 2), run.errors
    run.process.send_signal(signal.SIGINT)
    run.process.wait(START_SECONDS)
    leased = json.loads((run.out / "summary.json").read_text())["leased"]
    epochs = leased["epochs"]
    assert epochs >= 2
    assert leased["returned"] > 0
    assert leased["twice"] == leased["undone"] == leased["dropped"] == 0
    # What the server itself knows: as many samples in its updates as there are different ones among them.
    records = [json.loads(line) for line in (run.out / "trace.jsonl").read_text().splitlines()]
    assert sum(record["samples"] for record in records if record["kind"] == "applied") == leased["done"]
    last = max((run.out / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    _, _, manifest = (last / "manifest.json").read_text().partition("\n")  # after its checksum
    done = json.loads(manifest)["facts"]["tables"]["done"]
    assert done[:epochs] == [[epoch, 0, 1437] for epoch in range(epochs)]


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGKILL, ["--scheme", "bsp", "--servers", "2"]),
        (
            signal.SIGKILL,
            ["--scheme", "asp", "--servers", "2", "--ack", "replica", "--slice-mb", "0.02"],
        ),
        (
            signal.SIGKILL,
            ["--scheme", "asp", "--model", "cnn", "--slice-mb", "0.02", "--optimizer", "adam"],
        ),
        (signal.SIGSTOP, ["--scheme", "bsp", "--dead-after", "3"]),
    ],
)
def test_a_lost_server_is_replaced_and_nobody_else_is_restarted(
    train: Callable[..., Run], number: signal.Signals, options: list[str]
) -> None:
    run = train("--snapshot-every", "0.5", *options)
    how = "restored from its copy" if "replica" in options else "all shards were restored to version"
    trace = run.out / "trace.jsonl"
    assert within(2 * BOUND_SECONDS, lambda: trace.read_text().count('"applied"') > 40)  # there is a snapshot by then
    os.kill(run.parties["server 0"], number)
    assert within(2 * BOUND_SECONDS, lambda: f"was replaced: {how}" in run.errors), run.errors
    assert not alive(run.parties["server 0"])
    assert all(alive(pid) for name, pid in run.parties.items() if name != "server 0")
    applied = trace.read_text().count('"applied"')
    assert within(2 * BOUND_SECONDS, lambda: trace.read_text().count('"applied"') > applied + 20), run.errors
    run.process.send_signal(signal.SIGINT)
    run.everybody = [run.process.pid, *descendants(run.process.pid)]
    assert run.ends() < 2 * BOUND_SECONDS
    assert run.process.returncode == 130, run.errors
    assert (run.out / "model.safetensors").exists()


def test_sigterm_to_a_worker_sends_it_home_and_the_others_go_on(train: Callable[..., Run]) -> None:
    run = train("--scheme", "bsp")
    victim = run.parties["worker 1"]
    os.kill(victim, signal.SIGTERM)
    assert within(BOUND_SECONDS, lambda: "was drained after" in run.errors), run.errors
    assert "SIGTERM; 2 of 3 continue" in run.errors
    assert within(BOUND_SECONDS, lambda: not alive(victim))
    run.process.send_signal(signal.SIGINT)
    assert run.ends() < 2 * BOUND_SECONDS
    assert run.process.returncode == 130, run.errors
    summary = json.loads((run.out / "summary.json").read_text())
    assert [fault["event"] for fault in summary["faults"]] == ["drained"], "it was not started again, nor missed"
    assert (run.out / "logs" / "worker-1.log").read_text() == ""


def test_a_stopped_worker_is_given_up_after_a_while(train: Callable[..., Run]) -> None:
    victim = "worker 1"
    run = train("--scheme", "bsp", "--dead-after", "3")
    os.kill(run.parties[victim], signal.SIGSTOP)
    assert within(2 * BOUND_SECONDS, lambda: "lost after" in run.errors), run.errors
    assert "silent for" in run.errors
    assert "2 of 3 continue" in run.errors
    assert within(BOUND_SECONDS, lambda: not alive(run.parties[victim]))
    run.process.send_signal(signal.SIGINT)
    assert run.ends() < 2 * BOUND_SECONDS
    assert run.process.returncode == 130, run.errors
    assert (run.out / "model.safetensors").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_within_5_s_and_keeps_what_there_is(
    train: Callable[..., Run], number: signal.Signals, code: int
) -> None:
    run = train("--scheme", "gsp", draws=True)
    run.process.send_signal(number)
    assert run.ends() < BOUND_SECONDS
    assert run.process.returncode == code, run.errors
    left = {path.name for path in run.out.iterdir()}
    assert {"config.toml", "trace.jsonl", "summary.json", "model.safetensors", "curve.png"} <= left
    assert "Traceback" not in run.errors


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_the_whole_group_still_ends_the_run_in_order(
    train: Callable[..., Run], number: signal.Signals, code: int
) -> None:
    run = train("--scheme", "esync")
    os.killpg(run.process.pid, number)  # what a terminal, `timeout` and batch systems do
    assert run.ends() < BOUND_SECONDS
    assert run.process.returncode == code, run.errors
    assert {"summary.json", "model.safetensors"} <= {path.name for path in run.out.iterdir()}
    assert re.search(r"^paceline: .* lost", run.errors, re.MULTILINE) is None


def test_when_the_parent_is_killed_nobody_is_left(train: Callable[..., Run]) -> None:
    run = train("--scheme", "bsp")
    run.process.kill()
    assert run.ends() < BOUND_SECONDS
    assert not any(map(alive, run.everybody))
