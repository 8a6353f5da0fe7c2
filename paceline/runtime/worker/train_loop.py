"""Trains as a worker of `paceline train`: the loop of examples/02 on a model and data chosen by name.

load data, build the model, load a checkpoint or --init-from
join the run (`Pace`), which measures a step by `trial`
for each mini-batch: forward, backward, pace.step()
"""

from __future__ import annotations

import functools

from torch import Tensor, nn

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.core.samples.batch_limits import bounded
from paceline.engine import data, models
from paceline.engine.accelerators import give_back_memory, is_out_of_memory, wait_for_all
from paceline.engine.data.dataset import WAY_OUT, Dataset, Splits, shown
from paceline.engine.import_path import is_path
from paceline.engine.model.loss import mean_loss
from paceline.engine.model.mixed_precision import Precision
from paceline.engine.models import zoo
from paceline.engine.own_code import own_data, own_model
from paceline.engine.specs import LANGUAGE_MODEL, MOMENTUM, DataRecipe, ModelRecipe, OptimizerRecipe
from paceline.live.control.session import Session
from paceline.runtime.checkpointing.resume import open_at
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.spec.rate_scale import with_rate
from paceline.runtime.worker.loop.progress import ResumedProgress
from paceline.runtime.worker.pace import Pace
from paceline.runtime.worker.steps.random_generators import seed_generators
from paceline.runtime.worker.steps.step_timer import measured_step

FLATTENS = "mlp"
"""The named network that takes samples of any shape."""


def data_recipe(config: Config) -> DataRecipe:
    """Returns name, folder and sizes of the data set."""
    chosen = config.data
    return DataRecipe(
        name=chosen.name,
        directory=chosen.directory,
        samples=chosen.samples,
        resize=chosen.resize,
        mean_file=chosen.mean_file,
        augment=chosen.augment,
        file=chosen.file,
        context=chosen.context,
    )


def load_data(config: Config) -> Splits:
    """Returns the training and test set, from memory if this process has loaded them. Raises ConfigError."""
    if is_path(config.data.name):
        return _own_data(config.data.name)
    return data.load(data_recipe(config))


_own_data = functools.cache(own_data.load)
"""Loads data of the user's own, once: a process that loads first and then forks shares the memory with its children."""


def check_model(config: Config) -> None:
    """Imports what the network needs, once for all processes that are forked. Raises ConfigError."""
    if is_path(config.model.name):
        own_model.check(config.model.name)
    elif config.model.name in zoo.NETWORKS and config.model.name not in models.SMALL:
        zoo.import_library(config.model.name)


def build_model(config: Config, splits: Splits) -> nn.Module:
    """Returns the network, with the same weights in every process, by the run's seed. Raises ConfigError."""
    if is_path(config.model.name):
        return own_model.build(config.model.name, splits.train.first(2)[0], splits.train.classes, config.run.seed)
    chosen = config.model
    recipe = ModelRecipe(
        name=chosen.name,
        width=chosen.width,
        depth=chosen.depth,
        dropout=chosen.dropout,
        pixels=bool(config.data.mean_file),
    )
    if recipe.name in models.TOKEN_MODELS and splits.train.is_tokens:
        return _for_tokens(recipe, splits.train, splits.test, config.run.seed)
    if splits.train.predicts_next:
        raise ConfigError(f"--data text is tokens, and --model {recipe.name} takes none: give --model {LANGUAGE_MODEL}")
    if recipe.name == LANGUAGE_MODEL:
        raise ConfigError(f"--model {LANGUAGE_MODEL} predicts the next token of a text: give --data text")
    if config.model.name != FLATTENS and not splits.train.is_pictures:
        raise ConfigError(
            f"--model {config.model.name} takes pictures [c, h, w], and samples are {shown(splits.train.x)}: {WAY_OUT}"
        )
    return models.build(recipe, splits.train.shape, splits.train.classes, config.run.seed)


def _for_tokens(recipe: ModelRecipe, train: Dataset, test: Dataset, seed: int) -> nn.Module:
    """Returns a network that reads tokens. Raises ConfigError where it predicts tokens, and the data has classes."""
    if recipe.name == LANGUAGE_MODEL and not train.predicts_next:
        raise ConfigError(f"--model {LANGUAGE_MODEL} predicts tokens, and this data has classes: give --model lstm")
    vocabulary = train.classes if train.predicts_next else 1 + max(int(part.x.max()) for part in (train, test))
    return models.build_for_tokens(recipe, vocabulary, train.classes, train.x.shape[1], seed)


def recipe_of(config: Config, train_samples: int) -> Recipe:
    """Returns what the workers agree on; the schedule's epochs become samples here."""
    o, scheme = config.optimizer, config.scheme_of(train_samples)
    recipe = Recipe(
        scheme=scheme.name,
        parameters=scheme.parameters(),
        optimizer=OptimizerRecipe(
            name=o.name,
            lr=o.lr,
            momentum=o.momentum if o.name in MOMENTUM else 0.0,
            nesterov=o.nesterov,
            weight_decay=o.weight_decay,
            beta1=o.beta1,
            beta2=o.beta2,
            eps=o.eps,
            trust=o.trust,
            muon_momentum=o.muon_momentum,
            clip_norm=o.clip_norm,
        ),
        schedule=config.schedule.recipe(train_samples, config.stop.samples_of(train_samples)),
        seed=config.run.seed,
        codecs=config.codecs(scheme),
        gate=config.gate_policy(),
        robust=config.robust_policy(),
    )
    return with_rate(recipe, config.cluster.workers, o.lr_scale)


def train(config: Config, spec: ProcessSpec, session: Session) -> None:
    """Trains until the run is over."""
    splits, rank = load_data(config), spec.who.index
    model, start = build_model(config, splits), open_at(config, spec.resume)
    start.load_into(model)
    model.to(spec.device)
    precision, for_trial = (Precision(config.model.precision, model, spec.device) for _ in range(2))

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        """Returns the mean loss of a mini-batch."""
        return mean_loss(model(x), x, y)

    def trial(samples: int) -> float:
        """Returns the seconds of steps that change nothing, of so many samples or as many as memory holds, for as many
        as --batch-size has."""
        x, y = (part.to(spec.device) for part in splits.train.first(samples))

        def step() -> None:
            """Makes one of them."""
            for_trial.backward(loss_of, x, y)  # its loss scale is not the training's
            wait_for_all(x.device)

        try:
            return measured_step(step, model) * (config.data.batch_size / samples)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error) or samples < 2:
                raise
        give_back_memory(x.device)
        return trial(samples // 2)

    recipe = recipe_of(config, len(splits.train))
    memories, place = start.memories(rank), start.place(rank) or 0
    behind = ResumedProgress(start.clock(rank), start.batches, start.samples, memories, place, skipped=start.skipped)

    largest = bounded(bounded(config.data.batch_size, spec.batch_limit), spec.part_size)
    with Pace(model, recipe, spec, session, measure=lambda: trial(largest), behind=behind) as pace:
        if behind.memories is None:
            seed_generators(config.run.seed, rank, spec.incarnation)
        for x_batch, y_batch in pace.batches(
            splits.train, config.data.batch_size, epochs=None, partition=config.data.partition
        ):
            pace.backward(loss_of, x_batch, y_batch, precision=precision)
            pace.step()
