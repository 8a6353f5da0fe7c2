"""`paceline launch --ranks`: workers of two processes each, one of which is killed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.launch.forked_cli import Warm
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
back = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "back")
print("joined", pace.rank, pace.local_rank, again, flush=True)
data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randn(64, 2))
for x, y in pace.batches(data, batch_size=8, epochs=None):
    (model(x) - y).square().mean().backward()
    pace.step()
    if (pace.rank, pace.local_rank, again) == (1, 1, False) and pace.steps == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    if again and pace.steps == 10:
        open(back, "w").close()
    if (pace.rank, pace.local_rank) == (0, 0) and os.path.exists(back):
        pace.stop("the other one is back for ten steps")
pace.close()
print("final", pace.rank, pace.local_rank, model.module.weight.sum().item(), flush=True)
dist.destroy_process_group()
"""


LOSSES = f"""{LIGHT}
import torch, paceline, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Dropout(0.2), nn.Linear(9, 3))
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
pace = paceline.join(model, optimizer, scheme="diloco", h=2, group=dist.group.WORLD)
draw = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(40, 6, generator=draw), torch.randn(40, 3, generator=draw))
for x, y in pace.batches(data, batch_size=8, epochs=40):
    loss = (model(x) - y).square().mean()
    loss.backward()
    step = pace.steps
    pace.step()
    print("loss", pace.local_rank, step, loss.item(), flush=True)
pace.close()
dist.destroy_process_group()
"""


def launched(warm: Warm, tmp_path: Path, text: str, *words: str) -> str:
    """What `paceline launch` of this script says. The run must end well."""
    script = tmp_path / "script.py"
    script.write_text(text)
    command = warm.paceline("launch", *words, sys.executable, str(script))
    said = "".join(command.communicate(150))
    assert command.returncode == 0, said
    return said


def losses(said: str) -> dict[tuple[int, int], float]:
    """The losses by rank and step."""
    found = re.findall(r"loss (\d) (\d+) ([\d.e-]+)", said)
    return {(int(rank), int(step)): float(loss) for rank, step, loss in found}


def test_after_resume_the_ranks_optimizers_go_on_with_their_state(warm: Warm, tmp_path: Path) -> None:
    """The losses after it are those of the run that has kept the checkpoint and went on."""
    out = tmp_path / "run"
    worker = ("-n", "1", "--ranks", "2", "-s", "1")
    words = ("--checkpoint-every", "0.2", "--keep-last", "1000")
    said = launched(warm, tmp_path, LOSSES, *worker, "--out", str(out), *words)
    assert "ended with" not in said, "the evaluator's other rank is not needed"
    whole = losses(said)
    assert len(whole) == 2 * 200
    kept = sorted((out / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    middle = str(kept[(len(kept) - 1) // 2])  # the last ones are of the last steps, where steps are slow
    said = launched(warm, tmp_path, LOSSES, *worker, "--out", str(tmp_path / "again"), "--resume", middle)
    resumed = losses(said)
    first = min(step for _, step in resumed)
    assert 0 < first < 190
    assert resumed == {(rank, step): loss for (rank, step), loss in whole.items() if step >= first}


def test_a_worker_whose_rank_is_killed_is_lost_as_a_whole_and_comes_back(warm: Warm, tmp_path: Path) -> None:
    said = launched(warm, tmp_path, SCRIPT, "-n", "2", "--ranks", "2", "-s", "1", "--out", str(tmp_path / "run"))
    assert "[worker 1] rank 1 of 2 of this worker ended with SIGKILL" in said
    assert "paceline: worker 1" in said
    assert "lost after" in said
    assert "is back: incarnation" in said
    assert said.count("joined 1") == 4, "both ranks, in both lives"
    finals = {line.split()[-1] for line in said.splitlines() if "final" in line}
    assert said.count("final") == 4
    assert len(finals) == 1, "all ranks of all workers end with one model"
