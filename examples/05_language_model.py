"""A small language model: AdamW with two parameter groups, accumulated gradients, clipping and a cosine schedule.

python examples/05_language_model.py                               alone
paceline launch -n 2 -s 1 python examples/05_language_model.py     two workers, one server

Against the plain loop: `paceline.join` and `pace.batches` instead of a DataLoader, `pace.scheduler`, `pace.step()`
after the last of the accumulated batches instead of `optimizer.step()` and `optimizer.zero_grad()`, `pace.close()`.
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import paceline

CONTEXT, ACCUMULATED, BATCH, EPOCHS = 16, 2, 32, 3
text = ("the quick brown fox jumps over the lazy dog. " * 30).encode()
tokens = torch.tensor(list(text)) % 64
windows = tokens.unfold(0, CONTEXT + 1, 2)
dataset = TensorDataset(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())


class LanguageModel(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(64, width), nn.Embedding(CONTEXT, width)
        self.block = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embedding(x) + self.place(torch.arange(CONTEXT, device=x.device))
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, device=x.device)
        return self.head(self.norm(self.block(h, mask, is_causal=True)))


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


torch.manual_seed(0)
torch.set_num_threads(1)  # a model as small as this gains nothing by more
model = LanguageModel()
matrices = [p for p in model.parameters() if p.dim() >= 2]
vectors = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))

pace = paceline.join(model, optimizer, scheme="bsp", clip_norm=1.0)
steps = EPOCHS * len(dataset) // (ACCUMULATED * BATCH)
pace.scheduler(torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps), every=ACCUMULATED * BATCH)

for at, (x, y) in enumerate(pace.batches(dataset, BATCH, epochs=EPOCHS), start=1):
    (loss_of(model, x, y) / ACCUMULATED).backward()
    if at % ACCUMULATED == 0:
        pace.step()
pace.close()

with torch.no_grad():
    print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps, loss {loss_of(model, *dataset[:512]):.2f}")
