"""Accelerate: what changes is the Accelerator. Loaders that shuffle are shared by the speed of the workers.

    plain:  accelerator = Accelerator(gradient_accumulation_steps=2)
    here:   accelerator = PacelineAccelerator(gradient_accumulation_steps=2, scheme="asp")

pip install 'paceline[integrations]'
python examples/14_accelerate.py                                    alone
paceline launch -n 3 -s 1 --slowdown 1,1,3 --step-ms 30 python examples/14_accelerate.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.integrations.accelerate import PacelineAccelerator

torch.manual_seed(1)
images, targets = paceline.load_digits()
loader = DataLoader(TensorDataset(images[:1500], targets[:1500]), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=300)

accelerator = PacelineAccelerator(gradient_accumulation_steps=2, scheme="asp")
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for _epoch in range(3):
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
accelerator.end_training()
correct = (model(images[1500:]).argmax(1) == targets[1500:]).float().mean()
accelerator.print(f"accuracy {correct:.3f}")
