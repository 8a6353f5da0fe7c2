"""Optimizers of torch that do not import torch's compiler: the same numbers, and no import."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import inspect, json, sys, torch

def kinds():
    for name, kind in vars(torch.optim).items():
        if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer:
            yield name, kind

def trained(kind):
    torch.manual_seed(0)
    sparse = kind is torch.optim.SparseAdam
    layer = torch.nn.Embedding(4, 4, sparse=True) if sparse else torch.nn.Linear(4, 4, bias=False)
    optimizer = kind(layer.parameters(), lr=0.05)
    for _ in range(3):
        x = torch.tensor([0, 3]) if sparse else torch.ones(2, 4)
        def loss():
            optimizer.zero_grad()
            value = layer(x).square().sum()
            value.backward()
            return value
        loss()
        optimizer.step(loss)  # LBFGS calls it again and again
    optimizer.load_state_dict(optimizer.state_dict())
    assert torch.is_grad_enabled()
    return layer.weight.tolist()

if sys.argv[1] == "without":
    from paceline.engine.without_compiler import optimizers_without_compiler
    assert optimizers_without_compiler() and optimizers_without_compiler()
print(json.dumps([{name: trained(kind) for name, kind in kinds()}, "torch._dynamo" in sys.modules]))
"""


def run(how: str) -> tuple[dict[str, list[list[float]]], bool]:
    """Weights by optimizer after three steps, and whether the compiler was imported."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
    weights, imported = json.loads(done.stdout)
    return weights, imported


def test_all_optimizers_of_torch_compute_the_same_numbers_and_import_no_compiler() -> None:
    (plain, with_compiler), (light, without) = run("with"), run("without")
    assert (with_compiler, without) == (True, False)
    assert len(plain) > 10
    assert light == plain


def test_a_model_can_still_be_compiled_afterwards() -> None:
    script = (
        "import torch; from paceline.engine.without_compiler import optimizers_without_compiler as change; change()\n"
        "layer = torch.nn.Linear(2, 2); optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)\n"
        "compiled = torch.compile(layer, backend='eager'); compiled(torch.ones(1, 2)).sum().backward()\n"
        "optimizer.step(); print(torch._dynamo.utils.counters['stats']['unique_graphs'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
