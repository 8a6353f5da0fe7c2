"""The launcher of this host: a party is named, its end is told, and nobody is left."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.engine.data.remote import TIMEOUT_S
from paceline.launch.local.launcher import COMPILE_SECONDS, LocalHost, death, last_words, prepare_seconds
from paceline.runtime.spec import devices
from tests.launch.local.parties import config_for, pid_of, spec_at
from tests.launch.process_tree import alive, all_gone, comm, descendants, within

pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def test_a_host_has_more_time_to_get_ready_where_it_has_codecs_to_compile_or_data_to_fetch(tmp_path: Path) -> None:
    plain, coded = (config_for(tmp_path, compression={"up": name}) for name in ("none", "topk"))
    assert prepare_seconds(coded) == prepare_seconds(plain) + COMPILE_SECONDS
    far = config_for(tmp_path, data={"name": "mnist", "directory": "s3://bucket/mnist"})
    assert prepare_seconds(far) == prepare_seconds(plain) + TIMEOUT_S


def test_a_gpu_that_is_not_there_is_refused_and_they_are_not_counted_by_who_forks(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: True)
    launcher = host.launcher()
    with pytest.raises(ConfigError, match="--device cuda:99: torch "):
        launcher.prepare(config_for(Path("unused"), cluster={"workers": 1, "device": "cuda:99"}))
    far = config_for(Path("unused"), cluster={"workers": 2, "device": "cpu,cuda:99"})
    assert launcher.prepare(far, [(0, 0)]) == launcher.prepare(config_for(Path("unused")))  # the other one is elsewhere


def test_a_party_is_named_after_what_it_is_and_its_end_is_told(
    host: LocalHost, listener: socket.socket, tmp_path: Path
) -> None:
    launcher = host.launcher()
    launcher.start(spec_at(listener, tmp_path))
    pid = pid_of(host, "worker 0")
    os.kill(pid, signal.SIGKILL)
    ended = launcher.ended.get(timeout=60)
    assert str(ended.who) == "worker 0"
    assert ended.why == f"worker 0 (pid {pid}) was killed by SIGKILL"
    assert all_gone([pid])


def test_a_party_that_fails_is_told_with_its_last_words_and_its_log(host: LocalHost, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        spec = spec_at(closed, tmp_path)
    launcher = host.launcher()
    launcher.start(spec)
    why = launcher.ended.get(timeout=60).why
    assert "ended with exit code 1" in why
    assert "cannot reach coordinator" in why
    assert str(tmp_path / "logs" / "worker-0.log") in why
    assert "Traceback" not in why


def test_the_end_of_a_crew_is_the_end_of_all_its_parties(
    host: LocalHost, listener: socket.socket, tmp_path: Path
) -> None:
    launcher = host.launcher()
    launcher.start(spec_at(listener, tmp_path))
    launcher.start(spec_at(listener, tmp_path, "server 0"))
    pids = [pid_of(host, "worker 0"), pid_of(host, "server 0")]
    launcher.end(2.0)
    assert all_gone(pids)
    while True:
        try:
            assert launcher.ended.get_nowait().why == ""  # asked to, so no failure
        except queue.Empty:
            break


def test_a_party_stopped_by_a_signal_is_killed_all_the_same(
    host: LocalHost, listener: socket.socket, tmp_path: Path
) -> None:
    launcher = host.launcher()
    launcher.start(spec_at(listener, tmp_path))
    pid = pid_of(host, "worker 0")
    os.kill(pid, signal.SIGSTOP)
    launcher.end(0.3)
    assert all_gone([pid])


def test_data_that_cannot_be_had_are_refused_before_anybody_is_started(host: LocalHost, tmp_path: Path) -> None:
    data = {"name": "mnist", "directory": str(tmp_path)}
    with pytest.raises(ConfigError, match="holds neither train-images"):
        host.launcher().prepare(config_for(tmp_path, data=data))
    assert host.launcher().prepare(config_for(tmp_path)) == 1437  # and it still works


def test_when_the_owner_is_gone_so_are_all(listener: socket.socket, tmp_path: Path) -> None:
    """Another interpreter owns the fork server and is killed without a chance to clean up."""
    script = f"""
import threading
from pathlib import Path
from paceline.launch.local.launcher import LocalHost
from paceline.runtime.spec.process_spec import ProcessSpec
from tests.launch.local.parties import config_for
host = LocalHost()
launcher = host.launcher()
launcher.prepare(config_for(Path({str(tmp_path)!r})))
launcher.start(ProcessSpec.from_json({spec_at(listener, tmp_path).to_json()!r}))
print("up", flush=True)
threading.Event().wait()
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        assert within(60, lambda: any(comm(pid) == "pace worker 0" for pid in descendants(owner.pid)))
        family = descendants(owner.pid)
        assert len(family) >= 2
    finally:
        owner.kill()
        owner.wait(10)
        owner.stdout.close()  # type: ignore[union-attr]
    assert all_gone(family)


def test_closing_leaves_nobody() -> None:
    host = LocalHost()
    family = descendants(os.getpid())
    host.close()
    assert [pid for pid in family if "forkserver" in _command(pid) and alive(pid) and _is_of(pid, host)] == []


def test_one_that_is_still_getting_warm_is_not_waited_for() -> None:
    host = LocalHost()
    host.launcher()
    assert within(60, lambda: "torch" in _mapped(host._process.process.pid))
    host.close()
    assert host._process.process.returncode == -signal.SIGKILL


def _mapped(pid: int) -> str:
    """The libraries it has loaded."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _is_of(pid: int, host: LocalHost) -> bool:
    return pid == host._process.process.pid


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ""),
        (-9, "x (pid 7) was killed by SIGKILL"),
        (-11, "was killed by SIGSEGV"),
        (-40, "was killed by signal 40"),
        (3, "ended with exit code 3: no"),
    ],
)
def test_an_exit_code_is_told_in_words(tmp_path: Path, code: int, words: str) -> None:
    log = tmp_path / "x.log"
    log.write_text("oh\nno\n\n")
    assert words in death("x", 7, code, log)
    assert bool(death("x", 7, code, log)) == bool(code)


def test_a_log_without_words_is_named_and_one_that_is_missing_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    assert last_words(tmp_path / "empty") == f" (log: {tmp_path / 'empty'})"
    assert last_words(tmp_path / "nowhere") == ""
