"""`paceline launch`: somebody's own script as workers, with everything that may go wrong in it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.launch.local.script_launcher import programs_path
from tests.launch.forked_cli import Command, Warm
from tests.launch.process_tree import LIGHT, all_gone, descendants

pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")

JOIN = f"""{LIGHT}
import os, sys, threading, torch, paceline
from torch import nn
model = nn.Linear(3, 2)
model.register_buffer("rest", torch.tensor(os.getpid()))  # of the process that made it
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="bsp")
def step():
    model(torch.randn(4, 3)).square().sum().backward()
    pace.step(4)
"""

Launch = Callable[..., Command]
STARTED = "-u"
"""Words of a Python whose scripts are started, each with a torch of its own, as those of users are."""


@pytest.fixture
def launch(warm: Warm, tmp_path: Path) -> Iterator[Launch]:
    """`paceline launch` of a script with these lines, on two workers.

    The scripts are forked (tests/launch/forked_scripts.py) where `python` has no options.
    """
    started: list[Command] = []

    def start(lines: str, *options: str, joins: bool = True, workers: int = 2, python: str = "") -> Command:
        script = tmp_path / "script.py"
        script.write_text((JOIN if joins else "") + lines)
        words = ["launch", "-n", str(workers), "--out", str(tmp_path / "run"), *options]
        started.append(warm.paceline(*words, sys.executable, *python.split(), str(script)))
        return started[-1]

    yield start
    for process in started:
        family = [process.pid, *descendants(process.pid)]
        process.kill()
        process.communicate()
        assert all_gone(family)


def ended(process: Command) -> tuple[int, str, list[str]]:
    """Exit code, stdout and the lines of stderr; nobody is left."""
    family = descendants(process.pid)
    out, err = process.communicate(timeout=60)
    assert all_gone(family)
    return process.returncode, out, err.strip().splitlines()


def said(process: Command, line: str) -> None:
    for heard in process.stdout:
        if line in heard:
            return
    raise AssertionError(f"nobody said {line!r}")


def test_output_is_passed_on_by_rank_and_what_comes_after_training_is_waited_for(
    launch: Launch, tmp_path: Path
) -> None:
    lines = """
path = os.environ["PACELINE_TOKEN_FILE"]
assert open(path).read().strip() not in " ".join(os.environ.values())
print("token", oct(os.stat(path).st_mode & 0o777), oct(os.stat(os.path.dirname(path)).st_mode & 0o777))
for _ in range(5 + 5 * pace.rank):
    step()
pace.close()
threading.Event().wait(2.5)  # a long evaluation, say
assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"]) == 1
assert os.environ["NCCL_SOCKET_IFNAME"] == "=lo"
print("rank", pace.rank, "did", pace.steps, os.environ["PACELINE_WORKERS"])
"""
    code, out, err = ended(launch(lines, "-s", "2", python=STARTED))
    assert (code, err) == (0, [])
    assert "[worker 0] rank 0 did 5 2\n" in out
    assert "[worker 1] rank 1 did 10 2\n" in out
    assert out.count("token 0o600 0o700") == 2  # for the eyes of its owner only
    log = (tmp_path / "run" / "logs" / "worker-1.log").read_text()
    assert log.splitlines()[-1] == "rank 1 did 10 2"  # `paceline logs` has it, too
    assert "steps by worker: 0: 5, 1: 10" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [worker["steps"] for worker in summary["workers"]] == [5, 10]
    assert summary["samples"] == 60
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"config.toml", "trace.jsonl", "summary.json"}


def test_ranks_draw_different_numbers(launch: Launch) -> None:
    """Both scripts were seeded alike, by torch."""
    lines = """
print("drew", torch.rand(1).item())
step()
step()
pace.close()
"""
    code, out, err = ended(launch(lines))
    assert (code, err) == (0, [])
    drawn = [line.split()[-1] for line in out.splitlines() if "drew" in line]
    assert len(set(drawn)) == len(drawn) == 2
    assert "steps by worker: 0: 2, 1: 2" in out


def test_an_error_in_all_scripts_fails_the_run_and_is_its_last_line(launch: Launch) -> None:
    lines = """
for i in range(10**9):
    if i == 5:
        raise ValueError("a bad sample")
    step()
"""
    code, out, err = ended(launch(lines))
    assert code == 1
    assert re.fullmatch("paceline: worker [01]: ValueError: a bad sample; kept: summary.json", err[-1])
    assert '[worker 1]     raise ValueError("a bad sample")' in out


@pytest.mark.parametrize(
    ("fails", "why"),
    [
        ("raise MemoryError('too large')", "MemoryError: too large"),
        ("torch.empty(1 << 50)", "RuntimeError: .*"),
        ("sys.exit(3)", "its script ended with exit code 3"),
    ],
)
def test_an_error_in_one_script_is_the_loss_of_its_worker(launch: Launch, fails: str, why: str) -> None:
    lines = f"""
for i in range(40):
    if i == 5 and pace.rank == 1:
        {fails}
    step()
pace.close()
print("worker", pace.rank, "is done")
"""
    code, out, err = ended(launch(lines, "--restarts", "0"))
    assert code == 0
    assert re.search(rf"worker 1 \(.*\) lost after \d+ steps: worker 1: {why}; 1 of 2 continue", "\n".join(err))
    assert "[worker 0] worker 0 is done" in out


def test_a_bad_exit_code_in_all_scripts_fails_the_run(launch: Launch) -> None:
    lines = """
while True:
    if pace.steps == 5:
        sys.exit(3)
    step()
"""
    code, _, err = ended(launch(lines))
    assert code == 1
    assert re.fullmatch("paceline: worker [01]: its script ended with exit code 3; kept: summary.json", err[-1])


@pytest.mark.parametrize(("last", "named"), [("", 1), ("pace.close()", 0)])
def test_a_script_that_ends_without_close_is_named(launch: Launch, last: str, named: int) -> None:
    code, out, err = ended(launch(f"step()\n{last}\n"))
    assert code == 0
    assert (out + "\n".join(err)).count("its script ended without pace.close()") == named


def test_an_error_after_the_training_is_told_too(launch: Launch) -> None:
    code, _, err = ended(launch("step()\npace.close()\nsys.exit('cannot write the model')\n", workers=1))
    assert code == 1
    assert err[0].startswith("paceline: worker 0 (pid ")
    assert "ended with exit code 1: cannot write the model" in err[0]


def test_python_is_the_interpreter_that_paceline_runs_in(warm: Warm, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.prefix)")
    _, out, _ = ended(warm.paceline("launch", "-n", "1", "--out", str(tmp_path / "run"), "python", str(script)))
    assert f"[worker 0] {sys.prefix}" in out


def test_python_is_found_without_an_activated_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert shutil.which("python", path=programs_path()) == str(Path(sys.executable).parent / "python")


def test_a_script_that_never_joins_is_told_so(launch: Launch) -> None:
    code, out, err = ended(launch("print('hello')", joins=False, workers=1))
    assert code == 1
    assert "hello" in out
    assert "ended before it joined the run" in err[0]


@pytest.mark.parametrize(
    ("number", "name", "python"), [(9, "SIGKILL", ""), (40, "signal 40", "-u")], ids=["named", "without a name"]
)
def test_a_script_that_dies_is_named_with_its_signal(launch: Launch, number: int, name: str, python: str) -> None:
    """The only one: others would go on without it."""
    code, _, err = ended(launch(f"step()\nos.kill(os.getpid(), {number})\n", workers=1, python=python))
    assert code == 1
    assert err[0].startswith("paceline: worker 0 (pid ")
    assert f"was killed by {name}" in err[0]


def test_who_ends_because_another_was_lost_says_nothing_of_its_own(launch: Launch) -> None:
    lines = """
for i in range(10**9):
    if i == 20 and pace.rank == 1:
        os.kill(os.getpid(), 9)
    step()
"""
    code, out, err = ended(launch(lines, "-s", "0", workers=3))
    assert (code, out) == (1, "")
    (last,) = err
    assert last.startswith("paceline: worker 1 (pid ")
    assert "was killed by SIGKILL" in last


def test_a_script_that_is_killed_is_started_again_and_goes_on(launch: Launch, tmp_path: Path) -> None:
    lines = """
incarnation, i = os.environ["PACELINE_INCARNATION"], 0
while not pace.over:
    threading.Event().wait(0.01)  # leaves the processors to the one that begins anew
    step()
    i += 1
    if i == 20 and pace.rank == 1:
        print("rest is mine:", model.rest.item() == os.getpid(), flush=True)
        print("incarnation", incarnation, flush=True)
        if incarnation == "0":
            os.kill(os.getpid(), 9)
"""
    process = launch(lines, python=STARTED)
    said(process, "rest is mine: False")  # worker 0's, from the beginning
    said(process, "rest is mine: False")  # as the others have it who went on
    said(process, "incarnation 1")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [worker["incarnations"] for worker in summary["workers"]] == [1, 2]


def test_ctrl_c_ends_scripts_that_do_not_listen(launch: Launch) -> None:
    process = launch("step()\nprint('up')\nthreading.Event().wait(1000)\n", workers=1)
    said(process, "up")
    family = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    assert all_gone([process.pid, *family], 5.0)
    assert process.wait(5) == 130


def test_scripts_that_do_not_listen_go_when_the_launcher_is_killed(launch: Launch) -> None:
    process = launch("step()\nprint('up')\nthreading.Event().wait(1000)\n", workers=1, python=STARTED)
    said(process, "up")
    family = descendants(process.pid)
    assert len(family) >= 3  # a script, the fork server, a server
    os.kill(process.pid, signal.SIGKILL)
    assert all_gone(family, 5.0)


def test_a_store_counts_a_script_that_is_killed_and_goes_on_without_it(launch: Launch) -> None:
    lines = """
import os, torch, paceline.kvstore
kv = paceline.kvstore.create("dist_sync")
kv.init("w", torch.zeros(1))
if kv.rank == 1:
    os.kill(os.getpid(), 9)
kv.pushpull("w", v := torch.ones(1))
while not kv.num_dead_nodes:
    kv.pull("w")
print("the sum is", v.item(), "without", kv.num_dead_nodes)
"""
    code, out, err = ended(launch(lines, "-s", "2", joins=False))
    assert code == 0, err
    assert "[worker 0] the sum is 1.0 without 1\n" in out
    lost, *rest = err
    assert lost.startswith("paceline: worker 1 (")
    assert "1 of 2 continue" in lost
    # Said unless the run was over before the end of that process was noticed.
    assert [line for line in rest if not line.startswith("paceline: lost workers are not started again")] == []


def test_a_server_that_is_stopped_is_killed_and_replaced(launch: Launch, tmp_path: Path) -> None:
    """Without its end nobody starts the next one, and the workers wait for it until --timeout."""
    lines = """
import json, signal
while pace.steps < 40:
    step()
    if pace.rank == 0 and pace.steps == 5:
        parties = json.load(open(os.path.join(os.environ["PACELINE_OUT"], "status.json")))["parties"]
        os.kill(next(of["pid"] for of in parties if of["party"] == "server 0"), signal.SIGSTOP)
pace.close()
"""
    code, out, err = ended(launch(lines, "--dead-after", "1"))
    assert code == 0, err
    assert any("server 0" in line and "silent for" in line for line in err)
    assert any("server 0" in line and "replaced" in line for line in [*err, *out.splitlines()]), (err, out)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["samples"] >= 2 * 35 * 4


GATHERS = """
import torch.distributed as dist
dist.init_process_group("gloo")
gathered = [None] * dist.get_world_size()
for n in range(3):
    step()
    dist.all_gather_object(gathered, {"rank": dist.get_rank(), "loss": n * 10 + pace.rank})
pace.close()
assert dist.get_rank() == pace.rank == int(os.environ["LOCAL_RANK"])
print("gathered", gathered, os.environ["LOCAL_WORLD_SIZE"])
dist.destroy_process_group()
"""


def test_workers_of_a_script_have_a_group_of_torch_distributed_of_their_own(launch: Launch) -> None:
    code, out, err = ended(launch(GATHERS, "--torch-distributed", "auto", "-s", "1"))
    assert (code, err) == (0, [])
    assert out.count("gathered [{'rank': 0, 'loss': 20}, {'rank': 1, 'loss': 21}] 2\n") == 2


def test_without_the_flag_a_group_of_torch_distributed_knows_no_ranks(launch: Launch) -> None:
    code, out, _ = ended(launch('import torch.distributed as dist\ndist.init_process_group("gloo")\n'))
    assert code == 1
    assert "RANK" in out
