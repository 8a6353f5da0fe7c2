# drop_last of the user's DataLoader, under Lightning and the Trainer (huggingface/transformers#4757, litData#442).
from __future__ import annotations

from typing import Any

import torch
from _case import MODE, RANK, SCHEME, random_data, report
from torch import Tensor, nn

DATA, BATCH = random_data(50), 8
sizes = []


def by_lightning() -> None:
    import lightning
    from torch.utils.data import DataLoader

    from paceline.integrations.lightning import PacelineStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def training_step(self, batch: list[Tensor], _n: int) -> Tensor:
            sizes.append(len(batch[0]))
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_epochs=1, strategy=PacelineStrategy(SCHEME), accelerator="cpu", **quiet)
    trainer.fit(Module(), DataLoader(DATA, BATCH, shuffle=True, drop_last=True))


def by_trainer() -> None:
    from transformers import TrainingArguments

    from paceline.integrations.transformers import PacelineTrainer

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            sizes.append(len(x))
            return {"loss": self.layer(x).pow(2).mean()}

    arguments = TrainingArguments(
        output_dir=f"out{RANK}", per_device_train_batch_size=BATCH, num_train_epochs=1, dataloader_drop_last=True,
        report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no",
        remove_unused_columns=False,
    )  # fmt: skip
    rows = lambda batch: {"x": torch.stack([x for x, _ in batch])}  # noqa: E731
    PacelineTrainer(model=Module(), args=arguments, train_dataset=DATA, data_collator=rows, scheme=SCHEME).train()


by_lightning() if MODE == "lightning" else by_trainer()
report(sizes=sizes)
