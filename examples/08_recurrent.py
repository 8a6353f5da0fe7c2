"""A recurrent network over sequences of unlike lengths: a collate function that pads them, and clipped gradients.

python examples/08_recurrent.py                               alone
paceline launch -n 2 -s 1 python examples/08_recurrent.py     two workers, one server

The plain loop, and what is different below:

    loader = DataLoader(words, 32, collate_fn=padded)        pace = paceline.join(..., clip_norm=1.0)
    for x, lengths, y in loader:                             for ... in pace.loader(words, 32, collate_fn=padded):
        optimizer.zero_grad()                                not needed
        loss_of(model(x, lengths), y).backward()
        clip_grad_norm_(model.parameters(), 1.0)             not needed: the mean of all workers is clipped
        optimizer.step()                                     pace.step()
                                                             pace.close()
"""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import paceline

EPOCHS, LETTERS = 8, 6


def made(count: int) -> list[tuple[torch.Tensor, int]]:
    """Words of random letters; what is asked for is the letter that a word begins with."""
    draw = random.Random(1)
    words = [[draw.randrange(LETTERS) for _ in range(draw.randint(3, 12))] for _ in range(count)]
    return [(torch.tensor(word), word[0]) for word in words]


def padded(items: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    words = [word for word, _ in items]
    lengths = torch.tensor([len(word) for word in words])
    return pad_sequence(words, batch_first=True), lengths, torch.tensor([first for _, first in items])


class Recurrent(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(LETTERS, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, LETTERS)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][0])


torch.manual_seed(0)
torch.set_num_threads(1)  # a model as small as this gains nothing by more
words, model = made(2000), Recurrent()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loss_of = nn.CrossEntropyLoss()

pace = paceline.join(model, optimizer, scheme="bsp", clip_norm=1.0)
for x, lengths, y in pace.loader(words, 32, collate_fn=padded, epochs=EPOCHS):
    loss_of(model(x, lengths), y).backward()
    pace.step()
pace.close()

x, lengths, y = padded(words)
accuracy = (model(x, lengths).argmax(1) == y).float().mean()
print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps, accuracy {accuracy:.3f}")
