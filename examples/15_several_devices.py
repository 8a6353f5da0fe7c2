"""Workers of several devices: fully_shard inside each worker, DiLoCo between the workers.

paceline launch -n 2 --ranks 2 -s 1 python examples/15_several_devices.py    two workers of two processes each
torchrun --nproc-per-node 2 examples/15_several_devices.py                   one worker of two processes, alone

On GPUs each process takes the GPU of its LOCAL_RANK; here all are on the CPU, over Gloo. Against the loop of
fully_shard alone, the lines 1 to 4 differ:

    - loader = DataLoader(dataset, 32, sampler=DistributedSampler(dataset))
    + pace = paceline.join(model, optimizer, scheme="diloco", h=20, group=dist.group.WORLD)    # 1
    - for x, y in loader:
    + for x, y in pace.batches(dataset, batch_size=64, epochs=1):                              # 2
          loss_of(model(x), y).backward()
    -     optimizer.step()
    -     optimizer.zero_grad()
    +     pace.step()                                                                          # 3
    + pace.close()                                                                             # 4
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

import paceline

TOKENS, CONTEXT = 32, 4


def text(length: int, seed: int) -> torch.Tensor:
    """Tokens of a language in which the next one depends on the last two; its loss cannot fall to zero."""
    likely = torch.randn(TOKENS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(1)).mul(2).softmax(-1)
    drawn, tokens = torch.Generator().manual_seed(seed), [0, 1]
    for _ in range(length):
        tokens.append(int(torch.multinomial(likely[tokens[-2], tokens[-1]], 1, generator=drawn)))
    return torch.tensor(tokens)


def samples(length: int, seed: int) -> TensorDataset:
    """Contexts and the token after each."""
    windows = text(length, seed).unfold(0, CONTEXT + 1, 1)
    return TensorDataset(windows[:, :-1], windows[:, -1])


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(
    nn.Embedding(TOKENS, 48), nn.Flatten(), nn.Linear(48 * CONTEXT, 256), nn.ReLU(), nn.Linear(256, TOKENS)
)
for layer in (model[0], model[2], model[4]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
loss_of = nn.CrossEntropyLoss()
dataset, unseen = samples(30_000, seed=2), samples(3_000, seed=3)

pace = paceline.join(model, optimizer, scheme="diloco", h=20, group=dist.group.WORLD)  # 1
for x, y in pace.batches(dataset, batch_size=64, epochs=1):  # 2: this rank's part of its worker's batches
    loss_of(model(x), y).backward()  # fully_shard averages the gradients within the worker
    pace.step()  # 3: instead of optimizer.step() and zero_grad()
pace.close()  # 4: the final model, on all ranks

model.eval()
with torch.no_grad():
    loss = loss_of(model(unseen.tensors[0]), unseen.tensors[1])
if pace.local_rank == 0:
    print(f"worker {pace.rank} of {pace.workers}: {pace.steps} steps, loss {loss:.3f} on unseen text")
dist.destroy_process_group()
