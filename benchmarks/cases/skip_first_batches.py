# Resumed in the middle of an epoch by Accelerate's skip_first_batches (huggingface/accelerate#2007, of another kind).
from __future__ import annotations

import torch
from _case import SCHEME, random_data, report
from torch import nn
from torch.utils.data import DataLoader

from paceline.integrations.accelerate import PacelineAccelerator

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-6)
accelerator = PacelineAccelerator(scheme=SCHEME, cpu=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(random_data(48), 8, shuffle=True))
samples = 0
for x, _ in accelerator.skip_first_batches(loader, 1):
    accelerator.backward(model(x).pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
    samples += len(x)
accelerator.end_training()
report(samples=samples)
