"""A stream of text that has no length: every worker trains its own part of it, with processes that read ahead.

python examples/10_stream.py                                                  alone
paceline launch -n 2 -s 1 --samples 20000 python examples/10_stream.py        two workers, one server

The plain loop, and what is different below:

    loader = DataLoader(Lines(), 32, num_workers=1)          pace.loader(pace.shard(Lines()), 32, num_workers=1)
    for x, y in loader:
        optimizer.zero_grad()                                not needed
        loss_of(model(x), y).backward()
        optimizer.step()                                     pace.step()
                                                             pace.close()

`pace.shard` takes any iterable, such as a streaming data set of Hugging Face. All workers iterate over the same items.
"""

import random
from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.data import IterableDataset

import paceline

CONTEXT, LETTERS = 8, 27


class Lines(IterableDataset):
    """Pieces of sentences that are made as they are asked for: so many letters, and the one that follows."""

    def __init__(self, count: int = 600) -> None:
        self.count = count

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        draw = random.Random(3)  # the same on every worker
        for _ in range(self.count):
            who, what = draw.choice(["the fox", "a dog", "the cat"]), draw.choice(["sees", "chases", "likes"])
            line = [max(0, ord(letter) - 96) for letter in f"{who} {what} the bird "]
            for at in range(len(line) - CONTEXT):
                yield torch.tensor(line[at : at + CONTEXT]), line[at + CONTEXT]


torch.manual_seed(0)
torch.set_num_threads(1)  # a model as small as this gains nothing by more
model = nn.Sequential(
    nn.Embedding(LETTERS, 16), nn.Flatten(), nn.Linear(16 * CONTEXT, 64), nn.ReLU(), nn.Linear(64, 27)
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_of = nn.CrossEntropyLoss()

pace = paceline.join(model, optimizer, scheme="asp")
for x, y in pace.loader(pace.shard(Lines()), 32, num_workers=1):
    loss_of(model(x), y).backward()
    pace.step()
pace.close()

pieces = list(Lines(50))
with torch.no_grad():
    loss = loss_of(model(torch.stack([x for x, _ in pieces])), torch.tensor([y for _, y in pieces]))
print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps, loss {loss:.2f}")
