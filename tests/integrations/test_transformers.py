"""The Trainer of transformers: one worker trains what it trains alone, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, SequentialSampler

from paceline.core.errors import ConfigError
from tests.integrations.toys import assert_same

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'paceline[integrations]'")
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install 'paceline[integrations]'")
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from paceline.integrations import transformers
from paceline.integrations.transformers import PacelineTrainer

pytestmark = [pytest.mark.usefixtures("alone"), pytest.mark.filterwarnings("ignore")]


class Text(Dataset[dict[str, torch.Tensor]]):
    """40 rows of 8 tokens."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = (torch.arange(8) * (index % 5 + 1)) % 16
        return {"input_ids": row, "labels": row}


class Stream(IterableDataset[dict[str, torch.Tensor]]):
    """The same rows, of which nobody knows the number."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        return (Text()[index] for index in range(40))


class InOrder:
    """Draws samples in their order, so that two trainers see the same batches."""

    def _get_train_sampler(self, *_: Any) -> SequentialSampler:
        return SequentialSampler(Text())


class Alone(InOrder, Trainer):  # type: ignore[misc]
    pass


class Shared(InOrder, PacelineTrainer):
    pass


def trained(kind: type[Trainer], folder: Path, settings: dict[str, Any], **options: Any) -> Any:
    torch.manual_seed(1)
    sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    always = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "learning_rate": 1e-2, "save_strategy": "no"}
    args = TrainingArguments(str(folder), per_device_train_batch_size=8, num_train_epochs=2, **always, **settings)
    trainer = kind(model=model, args=args, **{"train_dataset": Text(), "eval_dataset": Text(), **options})
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    "settings",
    [{"lr_scheduler_type": "linear", "weight_decay": 0.1}, {"gradient_accumulation_steps": 5, "logging_steps": 1}],
    ids=["schedule and groups", "accumulation"],
)
def test_one_worker_trains_what_the_trainer_trains_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    alone = trained(Alone, tmp_path, settings)
    shared = trained(Shared, tmp_path, settings, scheme="bsp")
    assert shared.state.global_step == alone.state.global_step
    assert_same(alone.model, shared.model)
    assert shared.evaluate()["eval_loss"] == pytest.approx(alone.evaluate()["eval_loss"], rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "data", "schedule"),
    [({}, Text(), "shared"), ({"max_steps": 10}, Text(), "shared"), ({"max_steps": 10}, Stream(), "own")],
)
def test_the_schedule_goes_with_what_ends_the_training(
    settings: dict[str, Any], data: Any, schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`max_steps` ends passes of all workers, but of a stream, of which each worker makes so many steps."""
    asked = []
    original = transformers.join
    monkeypatch.setattr(transformers, "join", lambda *a, **b: asked.append(b) or original(*a, **b))
    shared = trained(PacelineTrainer, tmp_path, settings, scheme="bsp", train_dataset=data)
    assert shared.lr_scheduler.last_epoch == 10
    assert set(shared.lr_scheduler.get_last_lr()) == {0.0}
    assert [each.get("schedule", "shared") for each in asked] == [schedule]


def test_resuming_by_the_trainer_is_refused_with_the_way_out(tmp_path: Path) -> None:
    args = TrainingArguments(str(tmp_path), report_to=[], use_cpu=True)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    trainer = PacelineTrainer(model=model, args=args, train_dataset=Text())
    with pytest.raises(ConfigError, match="use paceline launch --checkpoint-every 60, and --resume auto"):
        trainer.train(resume_from_checkpoint=True)
    with pytest.raises(ConfigError, match=r"the worker joins when train\(\) makes the optimizer"):
        trainer.joined()


class Unfreezes(TrainerCallback):
    """Gives the optimizer what was frozen, at the second step."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        if state.global_step == 1:
            body = found["model"].transformer.wpe.requires_grad_(True)
            found["optimizer"].add_param_group({"params": list(body.parameters())})


def test_what_a_callback_unfreezes_is_refused_at_its_first_step(tmp_path: Path) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    model.transformer.wpe.requires_grad_(False)
    args = TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=4, report_to=[], save_strategy="no", use_cpu=True
    )
    trainer = PacelineTrainer(model, args, train_dataset=Text(), scheme="bsp", callbacks=[Unfreezes()])
    with pytest.raises(ConfigError, match=r"paceline\.join: transformer\.wpe\.weight; this run does not train that"):
        trainer.train()
    assert trainer.state.global_step == 1


def test_a_step_weighs_the_tokens_that_its_loss_is_divided_by(tmp_path: Path) -> None:
    """Sequences of unlike length count as they do where the Trainer of one process has all of them."""

    def collated(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        batch["labels"] = batch["labels"].clone()
        batch["labels"][0, 3:] = -100
        return batch

    class Noting(Shared):
        items = 0

        def get_batch_samples(self, *positional: Any, **named: Any) -> Any:
            batches, items = super().get_batch_samples(*positional, **named)
            self.items += int(items)
            return batches, items

    trainer = trained(Noting, tmp_path, {"gradient_accumulation_steps": 2}, data_collator=collated)
    assert trainer.pace.total_samples == trainer.items > 2 * 40


def test_where_the_scheme_says_how_large_batches_are_sequences_count(tmp_path: Path) -> None:
    """lbbsp dealt batches of as many sequences as they had tokens."""
    sizes: list[int] = []

    def collated(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        sizes.append(len(rows))
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

    trainer = trained(Shared, tmp_path, {}, scheme="lbbsp", data_collator=collated)
    assert set(sizes) == {8}
    assert trainer.pace.total_samples == 2 * 40
