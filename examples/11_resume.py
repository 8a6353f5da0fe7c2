"""A run that leaves checkpoints, and goes on where it was killed: weights, optimizer, data and all.

python examples/11_resume.py     alone
paceline launch -n 2 -s 1 --step-ms 20 --checkpoint-every 2 --out mine python examples/11_resume.py
paceline launch -n 2 -s 1 --step-ms 20 --checkpoint-every 2 --out mine --resume auto python examples/11_resume.py

The plain loop needs lines that save and load the model, the optimizer, the epoch and the place in it. Here there are
none: the second line leaves checkpoints, and with the third one `join` goes on from the newest. Kill the run in between
with Ctrl-C or `kill -9`; `--step-ms` makes it slow enough for that. `evaluate` judges the model of all workers beside
training, if the command has `--eval-every 2`.
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import paceline

EPOCHS = 20

images, targets = paceline.load_digits()
images = images.flatten(1)
dataset = TensorDataset(images[:1500], targets[:1500])

torch.manual_seed(0)
torch.set_num_threads(1)  # a model as small as this gains nothing by more
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
loss_of = nn.CrossEntropyLoss()


def evaluate(model: nn.Module) -> dict[str, float]:
    logits = model(images[1500:])
    right = logits.argmax(1) == targets[1500:]
    return {"accuracy": float(right.float().mean()), "loss": float(loss_of(logits, targets[1500:]))}


pace = paceline.join(model, optimizer, scheme="bsp", evaluate=evaluate)
for x, y in pace.batches(dataset, 32, epochs=EPOCHS):
    loss_of(model(x), y).backward()
    pace.step()
pace.close()

with torch.no_grad():
    print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps, accuracy {evaluate(model)['accuracy']:.3f}")
