"""A loop of one's own: the four lines that make it a worker of a run.

python examples/02_own_loop.py                               alone
paceline launch -n 4 -s 1 python examples/02_own_loop.py     four workers, one server
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import paceline

images, targets = paceline.load_digits()
images = images.flatten(1)
dataset = TensorDataset(images, targets)

model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
loss_of = nn.CrossEntropyLoss()

pace = paceline.join(model, optimizer, scheme="esync")  # 1
for x, y in pace.batches(dataset, batch_size=32, epochs=10):  # 2: its part of the epochs of all
    loss_of(model(x), y).backward()
    pace.step()  # 3: instead of optimizer.step()
pace.close()  # 4: the final model

accuracy = (model(images).argmax(1) == dataset.tensors[1]).float().mean()
print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps, accuracy {accuracy:.3f}")
