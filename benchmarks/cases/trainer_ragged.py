# Sequences of unlike lengths: two workers with 4 each against one with 8 (huggingface/transformers#37474, #34191).
from __future__ import annotations

import os
from typing import Any

import torch
from _case import MODE, RANK, SCHEME, WORKERS, report
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from paceline.integrations.transformers import PacelineTrainer

LENGTHS = [2, 16, 3, 14, 2, 15, 4, 2] if MODE == "ragged" else [8] * 8
generator = torch.Generator().manual_seed(0)
data = [torch.randint(0, 20, (length,), generator=generator) for length in LENGTHS]


def collate(rows: list[Tensor]) -> dict[str, Tensor]:
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)
    given = (padded != -100).long()
    return {"input_ids": padded.clamp(min=0), "labels": padded, "attention_mask": given}


def made() -> Any:
    torch.manual_seed(0)
    none = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2, **none))


def arguments(batch: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=f"out{RANK}", per_device_train_batch_size=batch, num_train_epochs=1, learning_rate=0.5,
        lr_scheduler_type="constant", optim="sgd", max_grad_norm=0, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip


def weights(model: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


model = made()
rest = {"train_dataset": data, "data_collator": collate}
PacelineTrainer(model=model, args=arguments(8 // WORKERS), scheme=SCHEME, **rest).train()
for name in [name for name in os.environ if name.startswith("PACELINE_")]:
    del os.environ[name]
plain, start = made(), weights(made())
Trainer(model=plain, args=arguments(8), **rest).train()
report(off_of_step=float((weights(model) - weights(plain)).norm() / (weights(plain) - start).norm()))
