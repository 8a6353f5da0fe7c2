# A backbone that is frozen for an epoch and added to the optimizer then (Lightning's BackboneFinetuning).
from __future__ import annotations

from typing import Any

import lightning
import torch
from _case import SCHEME, random_data, report
from lightning.pytorch.callbacks import BackboneFinetuning
from torch import Tensor, nn
from torch.utils.data import DataLoader

from paceline.integrations.lightning import PacelineStrategy


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, 2)

    def training_step(self, batch: list[Tensor], _n: int) -> Tensor:
        return nn.functional.cross_entropy(self.head(self.backbone(batch[0])), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], 0.1)


model = Module()
before = model.backbone[0].weight.detach().clone()
quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
unfreeze = BackboneFinetuning(unfreeze_backbone_at_epoch=1)
trainer = lightning.Trainer(
    max_epochs=3, strategy=PacelineStrategy(SCHEME), callbacks=[unfreeze], accelerator="cpu", **quiet
)
trainer.fit(model, DataLoader(random_data(96, inputs=4), 8, shuffle=True))
report(trained=not torch.equal(before, model.backbone[0].weight))
