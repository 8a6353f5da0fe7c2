"""A key-value store: any numbers under any key, summed over all workers, updated on the servers.

    python examples/04_kvstore.py                                               # alone
    paceline launch -n 4 -s 2 python examples/04_kvstore.py                     # four workers, two servers

Fits a line to points of which each worker has its own, and says what it found.
"""

import torch

import paceline.kvstore

kv = paceline.kvstore.create("dist_sync")
generator = torch.Generator().manual_seed(kv.rank)
x = torch.rand(256, generator=generator)
y = 3.0 * x - 1.0

line = torch.zeros(2, requires_grad=True)  # slope and offset
kv.set_optimizer("sgd", lr=0.5, momentum=0.8, rescale_grad=1 / (len(x) * kv.num_workers))
kv.init("line", line)  # worker 0's numbers, for everybody

for _ in range(200):
    (0.5 * (line[0] * x + line[1] - y).square()).sum().backward()
    kv.pushpull("line", line.grad, out=line)  # sums: rescale_grad makes a mean of them
    line.grad = None

kv.barrier()
print(f"worker {kv.rank} of {kv.num_workers}: slope {line[0]:.2f}, offset {line[1]:.2f}")
