"""Lightning and Fabric: one worker trains what the framework trains alone; several share the epochs by their speed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import ConfigError
from tests.integrations.toys import assert_same, loader, network

pytest.importorskip("lightning", reason="lightning is not installed: pip install 'paceline[integrations]'")
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BackboneFinetuning, ModelCheckpoint

from paceline.integrations import lightning
from paceline.integrations.lightning import FabricStrategy, PacelineStrategy

pytestmark = [pytest.mark.usefixtures("alone"), pytest.mark.filterwarnings("ignore")]  # Lightning's own hints


class Digits(LightningModule):  # type: ignore[misc]
    def __init__(self, optimizers: int = 1) -> None:
        super().__init__()
        self.network, self.count, self.seen = network(), optimizers, list[float]()
        self.automatic_optimization = optimizers == 1

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.seen.append(float(loss))
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("accuracy", (self.network(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> Any:
        made = [torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9) for _ in range(self.count)]
        return made if self.count > 1 else (made, [torch.optim.lr_scheduler.StepLR(made[0], 1, 0.5)])


def trained(tmp_path: Path, **settings: Any) -> tuple[Digits, Trainer]:
    module = Digits()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    checkpoint = ModelCheckpoint(tmp_path, save_last=True)
    trainer = Trainer(max_epochs=3, callbacks=[checkpoint], **quiet, **settings)
    trainer.fit(module, loader(), loader(samples=64))
    return module, trainer


def test_one_worker_trains_what_lightning_trains_alone(tmp_path: Path) -> None:
    alone, _ = trained(tmp_path / "alone", gradient_clip_val=1.0)
    shared, trainer = trained(tmp_path / "shared", gradient_clip_val=1.0, strategy=PacelineStrategy("bsp"))
    assert_same(alone, shared)
    assert alone.seen == pytest.approx(shared.seen, rel=1e-5)
    assert "accuracy" in trainer.callback_metrics
    saved = torch.load(tmp_path / "shared" / "last.ckpt", weights_only=True)["state_dict"]
    assert {name: tuple(each.shape) for name, each in saved.items()} == {
        name: tuple(each.shape) for name, each in shared.state_dict().items()
    }


class ByStep(Digits):
    """Its schedule has as many steps as there are batches in `epochs`."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=3 * len(loader()))
        return [optimizer], [{"scheduler": self.scheduler, "interval": "step"}]


@pytest.mark.parametrize(
    ("length", "schedule"), [({"max_epochs": 3}, "shared"), ({"max_steps": 21, "max_epochs": -1}, "own")]
)
def test_a_schedule_by_steps_goes_with_what_ends_the_fit(
    length: dict[str, int], schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`max_steps` counts the steps of one worker, and the schedule then, too."""
    asked = []
    original = lightning.join
    monkeypatch.setattr(lightning, "join", lambda *a, **b: asked.append(b) or original(*a, **b))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    module = ByStep()
    Trainer(strategy=PacelineStrategy("bsp"), enable_checkpointing=False, **quiet, **length).fit(module, loader())
    assert module.scheduler.last_epoch == 21
    assert [each.get("schedule", "shared") for each in asked] == [schedule]


def test_accumulated_batches_count_with_the_step_that_uses_them(tmp_path: Path) -> None:
    alone, _ = trained(tmp_path, accumulate_grad_batches=2)
    strategy = PacelineStrategy("bsp")
    shared, _ = trained(tmp_path, accumulate_grad_batches=2, strategy=strategy)
    assert_same(alone, shared)


def test_several_optimizers_are_refused_with_the_way_out() -> None:
    trainer = Trainer(strategy=PacelineStrategy("bsp"), logger=False, enable_checkpointing=False, max_epochs=1)
    with pytest.raises(ConfigError, match=r"returned 2 optimizers; several models are trained by paceline\.join"):
        trainer.fit(Digits(optimizers=2), loader())


def test_fabric_trains_what_it_trains_alone() -> None:
    results = []
    for strategy in ("auto", FabricStrategy("bsp")):
        fabric = Fabric(accelerator="cpu", devices=1, strategy=strategy)
        model = network()
        wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
        for x, y in fabric.setup_dataloaders(loader()):
            fabric.backward(nn.functional.cross_entropy(wrapped(x), y))
            optimizer.step()
            optimizer.zero_grad()
        if isinstance(strategy, FabricStrategy):
            strategy.pace.close()
        results.append(model)
    assert_same(*results)


def test_fabric_shares_loaders_that_shuffle_and_needs_the_model_first() -> None:
    strategy = FabricStrategy("bsp")
    fabric = Fabric(accelerator="cpu", devices=1, strategy=strategy)
    with pytest.raises(ConfigError, match=r"call fabric\.setup\(model, optimizer\) first"):
        next(iter(fabric.setup_dataloaders(loader(shuffle=True))))


def test_a_backbone_that_is_unfrozen_later_is_refused_at_its_first_step() -> None:
    """BackboneFinetuning gives it to the optimizer after an epoch, when the run trains the head alone."""

    class Finetuned(Digits):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.network = self.network[:-1], self.network[-1:]

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.network(self.backbone(batch[0])), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], 0.1)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "accelerator": "cpu"}
    unfreezes = BackboneFinetuning(unfreeze_backbone_at_epoch=1)
    trainer = Trainer(max_epochs=3, callbacks=[unfreezes], strategy=PacelineStrategy("bsp"), **quiet)
    with pytest.raises(ConfigError, match=r"after paceline\.join: backbone\..*; this run does not train that"):
        trainer.fit(Finetuned(), loader())
    assert trainer.current_epoch == 1
