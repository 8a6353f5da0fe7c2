"""The process of a fork server: started before all else, and never left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.launch.external.detect import STARTERS
from paceline.launch.local.fork_server_process import STARTED_BY_OTHERS, ForkServerProcess, is_needed
from tests.launch.process_tree import alive, within


def test_one_that_nobody_uses_is_killed_at_the_end_of_its_context() -> None:
    with ForkServerProcess() as server:
        assert alive(server.process.pid)
    assert server.process.returncode == -signal.SIGKILL
    server.__exit__()


@pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")
def test_a_warm_one_imports_torch_before_it_is_asked_for_anything() -> None:
    with ForkServerProcess(warm=True) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        assert within(30, lambda: "torch" in maps.read_text())


def test_ctrl_c_while_it_starts_neither_ends_it_nor_makes_it_say_anything() -> None:
    """A terminal sends it to the whole group. As soon as it was started it would have ended it, with a traceback."""
    script = (
        "import os, signal\n"
        "from paceline.launch.local.fork_server_process import ForkServerProcess\n"
        "with ForkServerProcess(warm=True) as server:\n"
        "    os.kill(server.process.pid, signal.SIGINT)\n"
        "    server.socket.settimeout(60)\n"
        '    server.socket.sendall(b\'{"word":"load","config":{"nowhere":{}},"count_gpus":false}\\n\')\n'
        "    print(server.socket.recv(4096).decode())\n"
        "    print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "unknown section [nowhere]" in done.stdout
    assert done.stdout.splitlines()[-1] == "set()"
    assert done.stderr == ""


def test_a_command_needs_one_unless_its_words_or_variables_say_otherwise() -> None:
    assert is_needed(["--steps", "1"], {"PATH": "/bin"})
    for word in ("-h", "--help", "--detach", "--write-unit=a.service", "--"):
        assert not is_needed(["--steps", "1", word], {})
    assert not is_needed([], {"DMLC_ROLE": "worker"})


def test_processes_that_others_start_are_known_by_the_same_variables_as_everywhere() -> None:
    assert {names.rank for names in STARTERS} <= set(STARTED_BY_OTHERS)
    assert all(not is_needed([], {names.rank: "0"}) for names in STARTERS)


def test_it_is_started_without_importing_anything_but_the_standard_library() -> None:
    brought = _modules("paceline.launch.local.fork_server_process") - _modules("sys")
    assert {name for name in brought if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "paceline",
        "paceline.core",
        "paceline.core.files",
        "paceline.core.files.helper_command",
        "paceline.launch",
        "paceline.launch.local",
        "paceline.launch.local.fork_server_process",
    }


def _modules(name: str) -> set[str]:
    """All modules of an interpreter that has imported this one; some come with the environment, as setuptools' hack."""
    script = f"import sys; import {name}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())
