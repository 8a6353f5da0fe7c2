"""Says what to train by names and numbers only: this is what a run saves and what travels, never an object.

Nothing here imports torch, so that configuration is checked before anything heavy is imported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

Option = bool | int | float | tuple[float, ...] | str | None
"""The types that an option of a parameter group may have."""

FORMATS = ("cifar10", "cifar100", "imagefolder", "lmdb", "recordio", "hdf5")
"""Data sets that are read from files of other systems, in `--data-dir`."""
LANGUAGE_DATA = "text"
DATASETS = ("digits", "mnist", "fashion-mnist", "synthetic", LANGUAGE_DATA, *FORMATS)
AUGMENTATIONS = ("none", "cifar", "alexnet", "imagenet")
SMALL_MODELS = ("mlp", "lenet", "cnn", "resnet18", "cifar10-quick", "cifar10-full", "lstm")
"""The networks written here."""
LANGUAGE_MODEL = "gpt"
"""The network that predicts the next token of a text, and reads nothing else."""
TOKEN_MODELS = ("lstm", LANGUAGE_MODEL)
"""Networks whose samples are tokens."""
ZOO_MODELS = (
    "alexnet",
    "vgg16",
    "googlenet",
    "inception-bn",
    "inception-v3",
    "resnet50",
    "resnet18-v2",
    "resnet50-v2",
    "wide-resnet",
    "mobilenet",
    "mobilenet-v2",
)
"""Published networks, most of them from a library (`paceline[zoo]`)."""
MODELS = (*SMALL_MODELS, LANGUAGE_MODEL, *ZOO_MODELS)
MUON = "muon"
"""The optimizer that makes local steps only: it looks at the shapes of matrices, which servers do not know."""
OPTIMIZERS = ("sgd", "adam", "adamw", "lars", "lamb", MUON)
BY_PATH = "by path"
"""The name of a recipe for any other optimizer, which is known by an import path."""
MOMENTUM = ("sgd", "lars")
"""The optimizers with a momentum; the others have beta1 and beta2."""
LAYER_WISE = ("lars", "lamb")
"""The optimizers whose learning rate differs by tensor."""
PRECISIONS = ("fp32", "bf16", "fp16")
SCHEDULES = ("constant", "step", "cosine", "poly")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRecipe:
    """Names the data set.

    directory: holds its files. samples: sizes synthetic data. resize: side of the pictures in pixels; 0: as they are.
    mean_file: is subtracted from the pixels of FORMATS; "" for the training set's own mean and deviation.
    augment: how training pictures are varied, one of AUGMENTATIONS.
    file: of a text; "" for the standard library's sources. context: tokens of a sample of text.
    """

    name: str = "digits"
    directory: str = ""
    samples: int = 4096
    resize: int = 0
    mean_file: str = ""
    augment: str = "none"
    file: str = ""
    context: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecipe:
    """Names the network. `width` multiplies the channels or hidden units of the standard one.

    depth: blocks of `gpt`; 0: the standard number.
    dropout: the fraction of the last layer's inputs that is dropped during training.
    pixels: samples are pixels of 0 to 255 less a mean; Caffe's networks then begin with the weights of its files.
    """

    name: str = "mlp"
    width: float = 1.0
    depth: int = 0
    dropout: float = 0.0
    pixels: bool = False


AUTO, NONE = "auto", "none"
"""Values of `lr_scale`, besides numbers: as the scheme says, and the rate as it is given."""


def parse_lr_scale(text: str) -> float | Literal["auto"]:
    """Returns the factor on the rate that `text` asks for, or "auto". Raises ValueError."""
    if text == AUTO:
        return "auto"
    try:
        factor = 1.0 if text == NONE else float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < math.inf:
        raise ValueError("must be auto, none or a positive number, such as 0.25")
    return factor


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecipe:
    """Describes SGD with momentum, Nesterov and weight decay; Adam; AdamW; LARS; LAMB; Muon, whose numbers mean what
    they mean in torch.optim.

    muon_momentum: Muon's; the betas and eps are then those of AdamW, which trains what Muon does not.
    trust: LARS's coefficient. clip_norm: a longer gradient is scaled down to this norm before it is used; 0 for none.
    lazy: on servers, rows of sparse embeddings are left alone by updates whose gradient does not have them.
    groups: the parameter groups, where there are several; the numbers of the recipe itself are then the first one's.
    by_path: any other optimizer; `name` is then BY_PATH, and of the numbers `lr` alone means something.
    """

    name: str = "sgd"
    lr: float = 0.05
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    lazy: bool = False
    trust: float = 0.001
    muon_momentum: float = 0.95
    clip_norm: float = 0.0
    groups: tuple[GroupRecipe, ...] = ()
    by_path: PathRecipe | None = None

    @property
    def needs_tensors(self) -> bool:
        """Returns True if an update looks at whole tensors. Then no slice of the model may cut one."""
        return self.name in LAYER_WISE or self.by_path is not None

    @property
    def momentum_max(self) -> float:
        """Returns the largest momentum of its groups."""
        return max((group.optimizer.momentum for group in self.groups), default=self.momentum)

    def without_momentum(self) -> OptimizerRecipe:
        """Returns the same recipe, with no momentum in any group."""
        groups = tuple(replace(group, optimizer=group.optimizer.without_momentum()) for group in self.groups)
        return replace(self, momentum=0.0, nesterov=False, groups=groups)

    @property
    def needs_model(self) -> bool:
        """Returns True if an update needs the norm of the whole gradient. Then the model may be in one slice only."""
        return self.clip_norm > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecipe:
    """Describes one parameter group: it has the next `length` numbers of the model's vector, and an
    optimizer of its own.
    """

    length: int
    optimizer: OptimizerRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRecipe:
    """Describes an optimizer that an import path names, `torch.optim:Adadelta` for example; it works on whole tensors.

    path: a class of torch.optim, or a function that is given the named parameters (`module:function`). It is empty
    where only the worker itself makes steps, by an optimizer of class `kind`.
    kind: the class of the optimizer, as the worker has it.
    groups: the options of each parameter group. counts: how many tensors each has, in the order of the vector.
    names, shapes: of the tensors.
    """

    path: str
    kind: str = ""
    groups: tuple[dict[str, Option], ...] = ()
    counts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecipe:
    """Describes the factor on the learning rate. Its clock is the training samples seen by all workers together.

    All lengths are in samples, so a schedule means the same under every scheme and any number of workers.

    constant: 1.  step: `factor` ** (samples // every), or, where `at` is given, `factor` for each of `at` that is
    reached.  cosine: from 1 down to `floor` at `total`, then `floor`.  poly: (1 - done) ** `power`, where `done` is the
    part of `total`. Each is preceded by a linear warm-up from 0 over `warmup` samples.
    """

    name: str = "constant"
    warmup: int = 0
    every: int = 0
    factor: float = 0.1
    total: int = 0
    floor: float = 0.0
    at: tuple[int, ...] = ()
    power: float = 1.0
