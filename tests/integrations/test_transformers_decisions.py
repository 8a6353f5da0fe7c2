"""The Trainer of transformers: what worker 0 has measured decides for all workers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.launch.forked_cli import Warm

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'paceline[integrations]'")
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'paceline[integrations]'")

SCRIPT = """
import json, os, sys
import torch
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, TrainingArguments
from tests.integrations.test_transformers import Text
from paceline.integrations.transformers import PacelineTrainer

RANK = int(os.environ["PACELINE_RANK"])
LOSSES = [1.0, 0.5, 0.6, 0.7, 0.8, 0.9]


class Measured(PacelineTrainer):
    # The loss is a course of its own; what else there is of an evaluation is real.
    evaluations = 0

    def evaluation_loop(self, *positional, **named):
        output = super().evaluation_loop(*positional, **named)
        output.metrics["eval_loss"] = LOSSES[self.evaluations]
        output.metrics["eval_weight"] = float(self.model.transformer.wte.weight.sum())
        weights.append(output.metrics["eval_weight"])
        self.evaluations += 1
        return output


weights = []
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2))
quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "per_device_train_batch_size": 4}
args = TrainingArguments(
    "trainer", num_train_epochs=40, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
    metric_for_best_model="eval_loss", lr_scheduler_type="reduce_lr_on_plateau",
    lr_scheduler_kwargs={"patience": 0, "factor": 0.5}, learning_rate=1e-2, **quiet,
)
stop = EarlyStoppingCallback(early_stopping_patience=2)
trainer = Measured(
    model=model, args=args, train_dataset=Text(), eval_dataset=Text(), callbacks=[stop], scheme=sys.argv[1]
)
trainer.train()
found = {"best": trainer.state.best_model_checkpoint, "metric": trainer.state.best_metric}
found["weight"] = float(model.transformer.wte.weight.sum())
found["rate"] = trainer.optimizer.param_groups[0]["lr"]
open(f"found{RANK}.json", "w").write(json.dumps({"found": found, "evaluated": weights}))
"""


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_all_workers_stop_with_worker_0_and_have_its_best_model_and_rate(
    warm: Warm, tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ["launch", "-n", "2", "-s", "1", "--out", "run"]
    launched = warm.paceline(*command, sys.executable, "-W", "ignore", "train.py", scheme, folder=tmp_path)
    _, err = launched.communicate(150)
    assert launched.returncode == 0, err
    first, second = (json.loads((tmp_path / f"found{rank}.json").read_text()) for rank in range(2))
    assert first["found"] == second["found"]
    assert second["evaluated"] == []
    assert first["found"]["metric"] == 0.5
    assert first["found"]["rate"] == pytest.approx(1e-2 * 0.5**2)
    # The weights that were evaluated are those that were saved, and those that all workers have now.
    assert first["found"]["weight"] == pytest.approx(first["evaluated"][1], abs=1e-6)
    assert len(first["evaluated"]) == 4
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["reason"] == "the Trainer was stopped early (worker 0)"
