"""A limit of the weights holds where the worker makes the steps, and is refused where servers make them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import paceline
from paceline.core.errors import ConfigError
from tests.launch.local.test_script_launcher import Launch, ended, launch  # noqa: F401  a fixture
from tests.runtime.own_loops import toy_data, toy_model

LIMIT = 0.125  # a float32


def clamp(model: nn.Module) -> None:
    for p in model.parameters():
        p.data.clamp_(-LIMIT, LIMIT)  # behind torch's back


def backward(model: nn.Module) -> None:
    x, y = toy_data().tensors
    nn.functional.cross_entropy(model(x), y).backward()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("scheme", ["bsp", "esync"])
def test_one_worker_trains_what_a_loop_would_that_limits_after_each_step(scheme: str) -> None:
    model, plain = toy_model(), toy_model()
    plain.load_state_dict(model.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), 0.5, momentum=0.9) for m in (model, plain)]
    pace = paceline.join(model, optimizers[0], scheme=scheme, constraint=clamp)
    for _ in range(6):
        backward(model)
        pace.step(len(toy_data()))
        optimizers[1].zero_grad()
        backward(plain)
        optimizers[1].step()
        clamp(plain)
    pace.close()
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    assert max(float(p.detach().abs().max()) for p in model.parameters()) == pytest.approx(LIMIT)


@pytest.mark.usefixtures("alone")
def test_the_final_model_keeps_the_limit_under_an_outer_optimizer() -> None:
    model = toy_model()
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), 0.5), scheme="diloco", h=2, constraint=clamp)
    for _ in range(6):
        backward(model)
        pace.step(len(toy_data()))
    pace.close()
    assert max(float(p.detach().abs().max()) for p in model.parameters()) <= LIMIT


@pytest.mark.usefixtures("alone")
def test_it_is_refused_where_servers_make_the_steps() -> None:
    model = toy_model()
    with pytest.raises(ConfigError, match=r"constraint: under asp with 1 server the steps .* take bsp, or"):
        paceline.join(model, torch.optim.SGD(model.parameters(), 0.5), scheme="asp", constraint=clamp)
    paceline.join(model, torch.optim.SGD(model.parameters(), 0.5), scheme="asp").close()


LIMITED = """
import torch, paceline
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
def clamp(model):
    for p in model.parameters():
        p.data.clamp_(-0.1, 0.1)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), 0.5), scheme="SCHEME", constraint=clamp)
for _ in range(20):
    (-model(torch.ones(8, 4)).mean()).backward()
    pace.step(8)
pace.close()
print("largest", round(max(float(p.detach().abs().max()) for p in model.parameters()), 6))
"""


@pytest.mark.skipif(not Path("/proc/1/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize(("scheme", "servers"), [("bsp", "0"), ("bsp", "1"), ("bsp", "2"), ("esync", "1")])
def test_two_workers_keep_the_limit(launch: Launch, scheme: str, servers: str) -> None:  # noqa: F811
    code, out, err = ended(launch(LIMITED.replace("SCHEME", scheme), "-s", servers, joins=False))
    assert (code, err) == (0, [])
    assert out.count("largest 0.1\n") == 2
