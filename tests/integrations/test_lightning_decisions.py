"""Lightning: what worker 0 has measured decides for all workers, though each measures something else."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.launch.forked_cli import Warm

pytest.importorskip("lightning", reason="lightning is not installed: pip install 'paceline[integrations]'")
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from paceline.integrations.lightning_decisions import CallbackDecisions

SCRIPT = """
import json, os, sys, threading
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from tests.integrations.toys import loader, network
from paceline.integrations.lightning import PacelineStrategy

RANK = int(os.environ["PACELINE_RANK"])
LOSSES = [1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1] if RANK == 0 else [1.0 / (n + RANK) for n in range(1, 20)]


class Digits(LightningModule):
    def __init__(self):
        super().__init__()
        self.network, self.validations = network(), 0

    def training_step(self, batch, index):
        # On a busy machine the others could train all epochs before worker 0 has a batch. In an exchange it may wait
        # for them, so they wait for a while only.
        if RANK == 0:
            open(f"begun{self.current_epoch}", "w").close()
        for _ in range(20):
            if any(os.path.exists(f"begun{n}") for n in (*range(self.current_epoch, 18), "over")):
                break
            threading.Event().wait(0.01)
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val_loss", LOSSES[self.validations])

    def on_train_end(self):
        if RANK == 0:
            open("begunover", "w").close()

    def on_validation_epoch_end(self):
        self.validations += not self.trainer.sanity_checking

    def test_step(self, batch, index):
        self.log("test_weight", self.network[0].weight.sum())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}


checkpoint = ModelCheckpoint("checkpoints", monitor="val_loss", filename="{epoch}-{val_loss:.3f}")
stop = EarlyStopping("val_loss", patience=2)
quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 1}
trainer = Trainer(max_epochs=18, callbacks=[checkpoint, stop], strategy=PacelineStrategy(sys.argv[1]), **quiet)
module = Digits()
trainer.fit(module, loader(shuffle=True), loader(samples=32))
rate, waited = trainer.optimizers[0].param_groups[0]["lr"], stop.wait_count
found = trainer.test(module, loader(samples=32), ckpt_path="best", verbose=False)[0]["test_weight"]
found = {"path": checkpoint.best_model_path, "score": float(checkpoint.best_model_score), "test": found, "rate": rate}
found["waited"] = waited
open(f"found{RANK}.json", "w").write(json.dumps(found))
"""


@pytest.mark.parametrize("scheme", ["bsp", "asp", "esync"])
def test_all_workers_stop_with_worker_0_and_have_its_best_checkpoint_and_rate(
    warm: Warm, tmp_path: Path, scheme: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = ["launch", "-n", "3", "-s", "1", "--out", "run"]
    launched = warm.paceline(*command, sys.executable, "-W", "ignore", "train.py", scheme, folder=tmp_path)
    _, err = launched.communicate(150)
    assert launched.returncode == 0, err
    found = [json.loads((tmp_path / f"found{rank}.json").read_text()) for rank in range(3)]
    assert found[0] == found[1] == found[2]
    assert re.fullmatch(r"epoch=\d+-val_loss=0\.500\.ckpt", Path(found[0]["path"]).name)
    assert (found[0]["score"], found[0]["waited"]) == (0.5, 2)
    if scheme == "bsp":  # else worker 0 may have no batch in an epoch, and then its last metric counts once more
        assert (Path(found[0]["path"]).name[:8], found[0]["rate"]) == ("epoch=1-", pytest.approx(0.1 * 0.5**2))
    else:
        assert found[0]["rate"] < 0.1 * 0.5**2 + 1e-9
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [Path(found[0]["path"]).name]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["reason"] == "Lightning's trainer was stopped early (worker 0)"


class Run:
    """Stands for the workers of one run, which share values at once."""

    def __init__(self, rank: int, values: dict[str, str]) -> None:
        self.rank, self.decides, self._values = rank, rank == 0, values

    def share(self, name: str, value: Any) -> None:
        self._values[name] = json.dumps(value)

    def shared(self, name: str) -> Any:
        return json.loads(self._values.get(name, "null"))


class OfTrainer:
    """Has what is read of a trainer."""

    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = callbacks


def test_a_state_with_tensors_and_infinity_arrives_as_it_was() -> None:
    values: dict[str, str] = {}
    stops, saves = (
        [EarlyStopping("loss") for _ in range(2)],
        [ModelCheckpoint("here", monitor="loss") for _ in range(2)],
    )
    stops[0].best_score, stops[0].wait_count = torch.tensor(0.5), 3
    saves[0].best_model_path, saves[0].best_model_score = "here/a.ckpt", torch.tensor(0.25)
    saves[0].best_k_models = {"here/a.ckpt": torch.tensor(0.25)}
    before = saves[1]._should_skip_saving_checkpoint
    decided = [CallbackDecisions() for _ in range(2)]
    for rank in range(2):
        decided[rank].begin(OfTrainer(stops[rank], saves[rank]), Run(rank, values))  # type: ignore[arg-type]
    assert saves[1]._should_skip_saving_checkpoint != before
    decided[0].share()
    decided[1].end()
    assert stops[1].state_dict() == stops[0].state_dict()
    assert saves[1].state_dict() == saves[0].state_dict()
    assert saves[1]._should_skip_saving_checkpoint == before
