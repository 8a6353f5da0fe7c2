"""The warm process: forks parties, tells how they ended, and never leaves one behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.launch.local.fork_messages import ForkAnswer, LoadData, LoadFailed, SendSignal
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.line_messages import LineDecoder, encode
from tests.launch.forked_cli import Warm
from tests.launch.local.parties import config_for, pid_of, spec_at
from tests.launch.process_tree import all_gone, stat

pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")


def test_when_the_fork_server_is_killed_so_are_those_it_forked(listener: socket.socket, tmp_path: Path) -> None:
    with LocalHost() as host:
        launcher = host.launcher()
        launcher.prepare(config_for(tmp_path))
        launcher.start(spec_at(listener, tmp_path))
        pid = pid_of(host, "worker 0")
        server = int(stat(pid)[1])
        os.kill(server, signal.SIGKILL)
        assert all_gone([server, pid])
        with pytest.raises(PacelineError, match="process that starts the others"):
            host.launcher().prepare(config_for(tmp_path))


def test_requests_that_come_in_pieces_are_put_together(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.launch.local.fork_server", str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    try:
        line = encode(SendSignal(pid=1, number=0))
        bad = encode(LoadData(config={"nowhere": {}}, count_gpus=False))
        for piece in (line[:7], line[7:] + bad[:20], bad[20:]):
            ours.sendall(piece)
        answers: LineDecoder[ForkAnswer] = LineDecoder(ForkAnswer)
        answers.feed(ours.makefile("rb").readline())
        answer = answers.take()
        assert isinstance(answer, LoadFailed)
        assert "unknown section [nowhere]" in answer.why
        ours.shutdown(socket.SHUT_WR)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        ours.close()


MODEL = """
import sys
from pathlib import Path
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x):
        Path("modules.txt").write_text(" ".join(sys.modules))
        return self.layers(x)
"""


@pytest.mark.parametrize("settings", [("asp", "sgd"), ("diloco", "adam")], ids="-".join)
def test_a_worker_without_a_codec_imports_neither_numba_nor_torchs_compiler(
    settings: tuple[str, str], warm: Warm, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    scheme, optimizer = settings
    words = ("--model", "net.py:Net", "--scheme", scheme, "--optimizer", optimizer, "--workers", "2", "--steps", "2")
    made = warm.paceline("train", *words, folder=tmp_path)
    _, said = made.communicate(60)
    assert made.returncode == 0, said
    modules = set((tmp_path / "modules.txt").read_text().split())
    assert "paceline.runtime.worker.pace" in modules
    assert modules & {"numba", "torch._dynamo", "scipy", "sklearn", "triton"} == set()
