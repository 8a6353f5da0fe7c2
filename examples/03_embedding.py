"""Embeddings: with sparse=True a step costs the rows that its batch looks into, not the table.

python examples/03_embedding.py                               alone
paceline launch -n 2 -s 1 python examples/03_embedding.py     two workers, one server
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import paceline

# Made-up texts of 8 words each: a text is positive when it has more words of the first half of the vocabulary.
vocabulary = 20_000
words = torch.randint(vocabulary, (2_000, 8), generator=torch.Generator().manual_seed(1)) % 400 * (vocabulary // 400)
dataset = TensorDataset(words, ((words < vocabulary // 2).sum(1) > 4).long())

model = nn.Sequential(nn.EmbeddingBag(vocabulary, 16, sparse=True), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=4.0)  # no momentum: it would move every row in every update
loss_of = nn.CrossEntropyLoss()

pace = paceline.join(model, optimizer, scheme="asp")
for x, y in pace.batches(dataset, batch_size=20, epochs=8):
    loss_of(model(x), y).backward()
    pace.step()
pace.close()

accuracy = (model(words).argmax(1) == dataset.tensors[1]).float().mean()
print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps, accuracy {accuracy:.3f}")
