"""timm: the loop of its `train.py` in short, with its model, optimizer, loader, schedule and average of weights.

The lines with a number are those that differ from timm alone, in this script and in `train.py`.

pip install 'paceline[timm]'
python examples/16_timm.py                                          alone
paceline launch -n 3 -s 1 --slowdown 1,1,3 --step-ms 30 python examples/16_timm.py
"""

from types import SimpleNamespace

import timm
import torch
from PIL import Image
from timm.data import create_loader
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, is_primary
from torch import nn

import paceline
from paceline.integrations.timm import TimmWorker

EPOCHS = 8


class Digits(torch.utils.data.Dataset):
    """Small pictures that come with Paceline; create_loader gives the data set its transform."""

    def __init__(self, begin, end):
        images, targets = paceline.load_digits()
        self.images = (images[begin:end, 0] * 255).to(torch.uint8).numpy()
        self.targets, self.transform = targets[begin:end].tolist(), None

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index]).convert("RGB")), self.targets[index]


args = SimpleNamespace(rank=0, world_size=1, distributed=False, grad_accum_steps=1)
torch.manual_seed(1)
model = timm.create_model("test_convnext", num_classes=10)
optimizer = create_optimizer_v2(model, opt="adamw", lr=2e-3, weight_decay=0.05)
model_ema = ModelEmaV3(model, decay=0.98)
settings = {"no_aug": True, "num_workers": 0, "persistent_workers": False, "device": torch.device("cpu")}
loader_train = create_loader(Digits(0, 1500), (3, 32, 32), 32, is_training=True, **settings)
loader_eval = create_loader(Digits(1500, 1797), (3, 32, 32), 99, **settings)

worker = TimmWorker(model, optimizer, loader_train, args, scheme="asp")  # 1
optimizer, loader_train = worker.optimizer, worker.loader  # 2
updates = len(loader_train)
lr_scheduler, _ = create_scheduler_v2(
    optimizer, num_epochs=EPOCHS, warmup_epochs=1, step_on_epochs=False, updates_per_epoch=updates
)
lr_scheduler = worker.scheduler(lr_scheduler)  # 3
for epoch in range(EPOCHS):
    model.train()
    num_updates = epoch * updates
    for x, y in loader_train:
        nn.functional.cross_entropy(model(x), y, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()
        num_updates += 1
        model_ema.update(model, step=num_updates)
        lr_scheduler.step_update(num_updates=num_updates)
    lr_scheduler.step(epoch + 1)
worker.close()  # 4: the model is that of all workers now

model.eval()
with torch.no_grad():
    correct = torch.cat([model(x).argmax(1) == y for x, y in loader_eval])
if is_primary(args):
    print(f"accuracy {correct.float().mean():.3f}")
