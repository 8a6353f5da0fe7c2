# Out of memory, and once more with half the batch (Accelerate's find_executable_batch_size, fairseq#3989).
from __future__ import annotations

import torch
from _case import SCHEME, random_data, report
from torch import nn

import paceline


def train(batch: int) -> int:
    model = nn.Linear(3, 2)
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), 1e-2), scheme=SCHEME)
    for x, y in pace.batches(random_data(64), batch):
        if len(x) > 8:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step()
    pace.close()
    return int(pace.steps)


batch, steps = 32, 0
while not steps:
    try:
        steps = train(batch)
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        batch //= 2
report(batch=batch, steps=steps)
