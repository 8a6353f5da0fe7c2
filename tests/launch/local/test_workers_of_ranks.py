"""`paceline launch --ranks`: workers of two processes each, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.process_tree import LIGHT

pytestmark = pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")

SCRIPT = f"""{LIGHT}
import os, signal, sys, torch, paceline, torch.distributed as dist
from pathlib import Path
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
pace = paceline.join(model, optimizer, scheme="asp", group=dist.group.WORLD)
again = os.environ["PACELINE_INCARNATION"] != "0"
print("joined", pace.rank, pace.local_rank, again, flush=True)
data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randn(64, 2))
for x, y in pace.batches(data, batch_size=8, epochs=None):
    (model(x) - y).square().mean().backward()
    pace.step()
    if (pace.rank, pace.local_rank, again) == (1, 1, False) and pace.steps == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    if again and pace.steps == 10:
        pace.stop("back for ten steps")
pace.close()
print("final", pace.rank, pace.local_rank, model.module.weight.sum().item(), flush=True)
dist.destroy_process_group()
"""


def test_a_worker_whose_rank_is_killed_is_lost_as_a_whole_and_comes_back(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = ["launch", "-n", "2", "--ranks", "2", "-s", "1", "--out", str(tmp_path / "run"), sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", "paceline", *command, str(script)],
        capture_output=True,
        text=True,
        timeout=180,
        env={name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")},
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "[worker 1] rank 1 of 2 of this worker ended with SIGKILL" in said
    assert "paceline: worker 1" in said
    assert "lost after" in said
    assert "is back: incarnation" in said
    assert said.count("joined 1") == 4, "both ranks, in both lives"
    finals = {line.split()[-1] for line in said.splitlines() if "final" in line}
    assert said.count("final") == 4
    assert len(finals) == 1, "all ranks of all workers end with one model"
