"""timm: one worker trains what the same loop trains alone, with timm's model, optimizer, loader, schedule and EMA."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import paceline
from paceline.core.errors import ConfigError
from tests.integrations.toys import assert_same

if importlib.util.find_spec("timm") is None:
    pytest.skip("timm is not installed: pip install 'paceline[timm]'", allow_module_level=True)
try:
    import timm
except RuntimeError as error:  # the torchvision of PyPI beside a torch without CUDA
    pytest.skip(f"{error}: put benchmarks/scripts/beside_cpu_torch on PYTHONPATH", allow_module_level=True)
from PIL import Image
from timm.data import FastCollateMixup, create_loader
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, dispatch_clip_grad
from torch import nn

from paceline.integrations.timm import TimmWorker

pytestmark = [pytest.mark.usefixtures("alone"), pytest.mark.filterwarnings("ignore")]
EPOCHS, BATCH, ACCUMULATED = 2, 16, 2


class Digits(torch.utils.data.Dataset[Any]):
    """Pictures, to which `create_loader` gives a transform."""

    transform: Any = None

    def __init__(self, samples: int) -> None:
        images, self.targets = paceline.load_digits()
        self.images = (images[:samples, 0] * 255).to(torch.uint8).numpy()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(self.images[index]).convert("RGB")), int(self.targets[index])


def loader_of(samples: int = 96, **settings: Any) -> Any:
    """As train.py makes it; without shuffling, unless `is_training`."""
    return create_loader(
        Digits(samples),
        (3, 32, 32),
        BATCH,
        num_workers=0,
        persistent_workers=False,
        device=torch.device("cpu"),
        **{"no_aug": True, **settings},
    )


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = timm.create_model("test_convnext", num_classes=10)
    return model, create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.75)


def trained(loader: Any, scheme: str = "") -> tuple[nn.Module, nn.Module, list[float], list[float]]:
    """What the loop of train.py trains, as a worker where there is a `scheme`: model, EMA, losses, rates."""
    model, optimizer = model_and_optimizer()
    ema, args = ModelEmaV3(model, decay=0.9), SimpleNamespace(rank=7, grad_accum_steps=ACCUMULATED)
    updates = len(loader) // ACCUMULATED
    worker = None
    if scheme:
        worker = TimmWorker(model, optimizer, loader, args, scheme=scheme)
        optimizer, loader = worker.optimizer, worker.loader
        assert args.rank == 0
    scheduler, _ = create_scheduler_v2(
        optimizer, num_epochs=EPOCHS, warmup_epochs=1, step_on_epochs=False, updates_per_epoch=updates
    )
    scheduler = worker.scheduler(scheduler) if worker else scheduler
    losses, rates = [], []
    for epoch in range(EPOCHS):
        done = epoch * updates
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            (loss / ACCUMULATED).backward()
            losses.append(loss.item())
            if (i + 1) % ACCUMULATED == 0:
                dispatch_clip_grad(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
                done += 1
                ema.update(model, step=done)
                scheduler.step_update(num_updates=done)
                rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step(epoch + 1, None)
    if worker:
        worker.close()
    return model, ema.module, losses, rates


@pytest.mark.parametrize("prefetcher", [True, False])
def test_one_worker_trains_what_timm_trains_alone(prefetcher: bool) -> None:
    alone = trained(loader_of(use_prefetcher=prefetcher))
    shared = trained(loader_of(use_prefetcher=prefetcher), "bsp")
    assert shared[2] == pytest.approx(alone[2], rel=1e-4)
    assert shared[3] == pytest.approx(alone[3], rel=1e-6)
    assert len(alone[3]) == 6
    assert_same(shared[0], alone[0])
    assert_same(shared[1], alone[1])


def test_training_batches_are_mixed_up_and_all_of_one_size() -> None:
    """timm drops the last 4 of 100 samples, since mixing in pairs needs an even number."""
    mix = FastCollateMixup(mixup_alpha=0.8, num_classes=10)
    model, optimizer = model_and_optimizer()
    loader = loader_of(100, is_training=True, no_aug=False, collate_fn=mix)
    worker = TimmWorker(model, optimizer, loader, scheme="asp")
    assert worker.loader.mixup_enabled
    assert len(worker.loader) == 6
    shapes = []
    for x, y in worker.loader:
        shapes.append((tuple(x.shape), tuple(y.shape)))
        nn.functional.cross_entropy(model(x), y).backward()
        worker.optimizer.step()
        worker.optimizer.zero_grad()
    assert shapes == [((16, 3, 32, 32), (16, 10))] * 6
    assert worker.pace.total_samples == 100
    worker.loader.mixup_enabled = False
    assert not mix.mixup_enabled
    worker.close()


def test_what_cannot_be_shared_is_refused_with_the_way_out() -> None:
    made = model_and_optimizer()
    with pytest.raises(ConfigError, match="leave --use-multi-epochs-loader out"):
        TimmWorker(*made, loader_of(use_multi_epochs_loader=True))
    with pytest.raises(ConfigError, match="start train.py with `paceline launch`, and not with distributed_train.sh"):
        TimmWorker(*made, loader_of(), SimpleNamespace(distributed=True))
    with pytest.raises(ConfigError, match="leave --naflex-loader"):
        TimmWorker(*made, [1, 2])
