# Matrices by Muon and the rest by AdamW, as in the speed runs of GPT-2 (KellerJordan/modded-nanogpt).
from __future__ import annotations

import torch
from _case import SCHEME, mini_batches, report, small_net
from torch import nn

import paceline

model = small_net()
matrices = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], 0.02)
rest = torch.optim.AdamW([p for p in model.parameters() if p.ndim != 2], 0.01)
pace = paceline.join(model, [matrices, rest], scheme=SCHEME)
for x, y in zip(*mini_batches(4), strict=True):
    nn.functional.cross_entropy(model(x[pace.rank]), y[pace.rank]).backward()
    pace.step(8)
pace.close()
before = small_net().parameters()
report(end=True, all_trained=not any(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)))
