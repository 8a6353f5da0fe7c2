"""The Trainer of transformers: what changes is its class. The model is made from a config; nothing is downloaded.

    plain:  trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=test)
    here:   trainer = PacelineTrainer(model=model, args=args, train_dataset=train, eval_dataset=test, scheme="asp")

pip install 'paceline[integrations]'
python examples/13_trainer.py                                       alone
paceline launch -n 3 -s 1 --slowdown 1,1,3 --step-ms 30 python examples/13_trainer.py
"""

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

from paceline.integrations.transformers import PacelineTrainer

TEXT = "it was the best of times, it was the worst of times, it was the age of wisdom, " * 60
LENGTH = 32


class Text(Dataset):
    """Rows of LENGTH characters of TEXT."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        at = self.rows[index]
        row = torch.tensor([ord(letter) - 32 for letter in TEXT[at : at + LENGTH]])
        return {"input_ids": row, "labels": row}


torch.manual_seed(1)
config = GPT2Config(vocab_size=96, n_positions=LENGTH, n_embd=32, n_layer=1, n_head=2)
args = TrainingArguments(
    "runs/trainer",
    num_train_epochs=3,
    per_device_train_batch_size=16,
    learning_rate=3e-3,
    weight_decay=0.01,
    logging_steps=50,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
train, test = Text(range(0, 3000, 2)), Text(range(3001, 4001, 10))
trainer = PacelineTrainer(
    model=GPT2LMHeadModel(config), args=args, train_dataset=train, eval_dataset=test, scheme="asp"
)
trainer.train()
if trainer.pace.rank == 0:
    print(f"loss {trainer.evaluate()['eval_loss']:.3f}")
