"""A GAN: two models with an optimizer each, which take turns in one loop.

python examples/09_gan.py                               alone
paceline launch -n 2 -s 1 python examples/09_gan.py     two workers, one server

The plain loop, and what is different below:

    for (real,) in DataLoader(points, 64):                   pace = paceline.join({"D": ...}, {"D": ...}, scheme="asp")
        of_d.zero_grad()                                     stays
        discriminated(real, made(real).detach()).backward()  stays
        of_d.step()                                          pace.step("D")
        of_g.zero_grad()                                     stays
        fooled(made(real)).backward()                        stays
        of_g.step()                                          pace.step("G")
"""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from torch.utils.data import TensorDataset

import paceline

EPOCHS, NOISE = 30, 4

torch.manual_seed(0)
torch.set_num_threads(1)  # models as small as these gain nothing by more
angles = 2 * torch.pi * torch.rand(4096, 1)
points = TensorDataset(torch.cat([angles.cos(), angles.sin()], 1) + 0.05 * torch.randn(4096, 2))  # a ring

net_g = nn.Sequential(nn.Linear(NOISE, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
net_d = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_d = torch.optim.Adam(net_d.parameters(), lr=1e-3, betas=(0.5, 0.999))
of_g = torch.optim.Adam(net_g.parameters(), lr=1e-3, betas=(0.5, 0.999))


def made(count: int) -> torch.Tensor:
    return net_g(torch.randn(count, NOISE))


pace = paceline.join({"D": net_d, "G": net_g}, {"D": of_d, "G": of_g}, scheme="asp")
for (real,) in pace.loader(points, 64, epochs=EPOCHS):
    n = len(real)
    of_d.zero_grad()
    false = made(n).detach()
    judged = net_d(torch.cat([real, false]))
    cross_entropy(judged, torch.cat([torch.ones(n, 1), torch.zeros(n, 1)])).backward()
    pace.step("D")
    of_g.zero_grad()
    cross_entropy(net_d(made(n)), torch.ones(n, 1)).backward()
    pace.step("G")
pace.close()

with torch.no_grad():
    radii = made(2000).norm(dim=1)
print(f"worker {pace.rank} of {pace.workers}: made points lie {radii.mean():.2f} from the middle, the ring 1.00")
