# A dataset that its DataLoader's worker_init_fn opens, under Accelerate (huggingface/accelerate#2007).
from __future__ import annotations

import torch
from _case import SCHEME, report
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from paceline.integrations.accelerate import PacelineAccelerator


class File(Dataset[Tensor]):
    is_open = False

    def __len__(self) -> int:
        return 48

    def __getitem__(self, i: int) -> Tensor:
        if not File.is_open:
            raise RuntimeError("worker_init_fn was not called")
        return torch.full((3,), float(i))


def open_file(_number: int) -> None:
    File.is_open = True


model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
accelerator = PacelineAccelerator(scheme=SCHEME, cpu=True)
loader = DataLoader(File(), 8, shuffle=True, num_workers=1, worker_init_fn=open_file)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
samples = 0
for x in loader:
    accelerator.backward(model(x).pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
    samples += len(x)
accelerator.end_training()
report(samples=samples)
