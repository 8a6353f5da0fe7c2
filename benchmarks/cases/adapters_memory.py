# Low-rank adapters over a large frozen body: what join costs in memory and seconds (huggingface/peft).
from __future__ import annotations

import time
from pathlib import Path

import torch
from _case import MODE, SCHEME, report
from torch import Tensor, nn

import paceline

WIDTH, RANK_OF_ADAPTER = 4096, 8


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(RANK_OF_ADAPTER, WIDTH) * 0.01)
        self.up = nn.Parameter(torch.zeros(WIDTH, RANK_OF_ADAPTER))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


def joined(layers: int) -> tuple[float, float]:
    """Returns by how many megabytes the peak of memory grows in join, and its seconds."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Adapted() for _ in range(layers)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    before, began = peak_mb(), time.monotonic()
    pace = paceline.join(model, optimizer, scheme=SCHEME)
    seconds, more = time.monotonic() - began, peak_mb() - before
    for _ in range(2):
        model(torch.randn(4, WIDTH)).pow(2).mean().backward()
        pace.step(4)
    pace.close()
    return more, seconds


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


joined(1)  # the first join of a process imports and maps what has one size
mb_more, seconds = joined(int(MODE))
report(mb_more=round(mb_more), join_seconds=round(seconds, 1))
