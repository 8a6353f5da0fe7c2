"""A worker that joins late makes the same updates as the others where each makes them by an optimizer of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.launch.local.test_script_launcher import Launch, ended, launch  # noqa: F401  a fixture

SCRIPT = """
import os, signal, sys, time, torch, paceline
from torch import nn
from tests.runtime.own_optimizers import Lion, ScheduleFree
torch.manual_seed(0)
model = nn.Linear(4, 2)
kinds = {"momentum": lambda p: torch.optim.SGD(p, 0.05, momentum=0.99), "lion": Lion, "schedule free": ScheduleFree}
optimizer = kinds["KIND"](model.parameters())
turns = hasattr(optimizer, "eval")
if turns:
    optimizer.train()
pace = paceline.join(model, optimizer, scheme="bsp", updates="workers")
x = torch.randn(1600, 4, generator=torch.Generator().manual_seed(3))
data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
lost = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lost")
steps, first = 0, not os.path.exists(lost)

def sums():
    return " ".join(f"{float(p.detach()[0].double().sum()):.6f}" for p in model.parameters())

for x, y in pace.batches(data, 8, epochs=2):
    nn.functional.cross_entropy(model(x), y).backward()
    pace.step()
    steps += 1
    time.sleep(0.2 if pace.lost else 0.01)  # worker 0 trains until worker 1 is back
    print("after a step" if first else "again", sums(), flush=True)
    if pace.rank == 1 and steps == 20 and first:
        open(lost, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
pace.close()
if turns:
    optimizer.eval()
print("final", sums(), flush=True)
"""


@pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("kind", ["momentum", "lion", "schedule free"])
def test_a_worker_that_comes_back_takes_what_the_optimizers_of_the_others_remember(launch: Launch, kind: str) -> None:  # noqa: F811
    options = ("-s", "1", "--restarts", "1", "--min-workers", "1")
    code, out, _ = ended(launch(SCRIPT.replace("KIND", kind), *options, joins=False))
    assert code == 0, out
    again = re.findall(r"\[worker 1\] again (.*)", out)
    assert len(again) > 10
    of_others = set(re.findall(r"\[worker 0\] after a step (.*)", out))
    assert len(set(again) - of_others) <= 1  # one of the two may end a round after the other
    assert len(set(re.findall(r"\] final (.*)", out))) == 1
