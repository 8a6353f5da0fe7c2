"""Lightning: what changes is the strategy. Workers take batches as fast as they are; worker 0 logs and saves.

    plain:  trainer = Trainer(max_epochs=3)
    here:   trainer = Trainer(max_epochs=3, strategy=PacelineStrategy("asp", report={"accuracy": "val_accuracy"}))

pip install 'paceline[integrations]'
python examples/12_lightning.py                                     alone
paceline launch -n 3 -s 1 --slowdown 1,1,3 --step-ms 20 python examples/12_lightning.py
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline
from paceline.integrations.lightning import PacelineStrategy


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch, index):
        images, targets = batch
        loss = nn.functional.cross_entropy(self.network(images), targets)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        images, targets = batch
        self.log("val_accuracy", (self.network(images).argmax(1) == targets).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.2)


torch.manual_seed(1)
images, targets = paceline.load_digits()
train = DataLoader(TensorDataset(images[:1500], targets[:1500]), batch_size=32, shuffle=True)
test = DataLoader(TensorDataset(images[1500:], targets[1500:]), batch_size=100)

strategy = PacelineStrategy("asp", report={"accuracy": "val_accuracy"})
trainer = Trainer(max_epochs=3, strategy=strategy, logger=False, enable_checkpointing=False)
trainer.fit(Digits(), train, test)
