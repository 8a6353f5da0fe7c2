"""LoRA: a frozen model with small adapters beside its layers. Only the adapters are exchanged, 1 of 26 numbers.

python examples/07_lora.py                               alone
paceline launch -n 2 -s 1 python examples/07_lora.py     two workers, one server

The plain loop, and what is different below:

    optimizer = torch.optim.AdamW(adapters(model))           pace = paceline.join(model, optimizer, scheme="diloco")
    for x, y in DataLoader(dataset, 32):                     for x, y in pace.batches(dataset, 32, epochs=EPOCHS):
        optimizer.zero_grad()                                not needed
        loss_of(model(x), y).backward()
        optimizer.step()                                     pace.step()
                                                             pace.close()

What is frozen may have any type: here it is bfloat16, and stays as it is, bit for bit.
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import paceline

EPOCHS, RANK = 20, 4


class Adapted(nn.Module):
    """`layer` is frozen; a product of two thin matrices is added to what it does."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.to(torch.bfloat16).requires_grad_(False)
        self.down = nn.Parameter(torch.randn(RANK, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.to(torch.bfloat16)).float() + x @ self.down.T @ self.up.T


images, targets = paceline.load_digits()
images = images.flatten(1)
dataset = TensorDataset(images, targets)

torch.manual_seed(0)
torch.set_num_threads(1)  # a model as small as this gains nothing by more
model = nn.Sequential(
    Adapted(nn.Linear(64, 256)), nn.ReLU(), Adapted(nn.Linear(256, 256)), nn.ReLU(), nn.Linear(256, 10)
)
model[-1].requires_grad_(False)
adapters = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(adapters, lr=5e-3)
loss_of = nn.CrossEntropyLoss()

pace = paceline.join(model, optimizer, scheme="diloco", h=10)
for x, y in pace.batches(dataset, 32, epochs=EPOCHS):
    loss_of(model(x), y).backward()
    pace.step()
pace.close()

share = sum(p.numel() for p in adapters) / sum(p.numel() for p in model.parameters())
accuracy = (model(images).argmax(1) == dataset.tensors[1]).float().mean()
print(f"worker {pace.rank} of {pace.workers}: {share:.1%} of the model trained, accuracy {accuracy:.3f}")
