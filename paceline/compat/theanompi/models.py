"""Theano-MPI's own models by their class names, with its hyper-parameters; data and size may be set by the command.

    AlexNet, GoogLeNet, VGG16, ResNet50    ImageNet: name its folder, data_dir=...
    Cifar10_model, Wide_ResNet             CIFAR-10
    LSTM                                   sequences of tokens: data=my.py:load
    WGAN, LSGAN                            MNIST; the workers share the critic only

Networks are those of `--model` (docs/networks.md); so some differ from Theano-MPI's in details.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from paceline.compat.theanompi.recorder import Recorder
from paceline.compat.theanompi.torch_model import TorchModel
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

IMAGENET, CIFAR10 = "imagefolder", "cifar10"
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "AlexNet": {
        "network": "alexnet",
        "data_name": IMAGENET,
        "n_epochs": 70,
        "batch_size": 128,
        "learning_rate": 0.01,
        "lr_step": (20, 40, 60),
        "weight_decay": 5e-4,
    },
    "GoogLeNet": {
        "network": "googlenet",
        "data_name": IMAGENET,
        "n_epochs": 90,
        "batch_size": 32,
        "learning_rate": 0.005,
        "lr_power": 0.5,
        "weight_decay": 2e-4,
    },
    "VGG16": {
        "network": "vgg16",
        "data_name": IMAGENET,
        "n_epochs": 40,
        "batch_size": 64,
        "learning_rate": 0.002,
        "lr_step": (15, 30, 35),
        "weight_decay": 5e-4,
    },
    "ResNet50": {
        "network": "resnet50",
        "data_name": IMAGENET,
        "n_epochs": 90,
        "batch_size": 32,
        "learning_rate": 0.1 * 32 / 256,
        "lr_step": (30, 60, 80),
        "weight_decay": 1e-4,
    },
    "Cifar10_model": {
        "network": "cnn",
        "data_name": CIFAR10,
        "n_epochs": 70,
        "batch_size": 256,
        "learning_rate": 0.01,
        "lr_step": (50, 60, 65),
        "weight_decay": 1e-4,
    },
    "Wide_ResNet": {
        "network": "wide-resnet",
        "data_name": CIFAR10,
        "n_epochs": 90,
        "batch_size": 128,
        "learning_rate": 0.001,
        "lr_step": (50, 70, 90),
        "make_optimizer": lambda model, params: torch.optim.Adam(params, model.learning_rate),
    },
    "LSTM": {
        "network": "lstm",
        "data_name": "imdb",
        "n_epochs": 20,
        "batch_size": 16,
        "learning_rate": 0.01,
        "make_optimizer": lambda model, params: torch.optim.Adam(params, model.learning_rate),
    },
}
"""What each class overrides in `TorchModel`."""
NOISE, CLIP = 100, 0.01


class AdversarialModel(TorchModel):
    """A GAN for pictures: `params` are the critic's, which the workers share; each has a generator of its own.

    The critic makes `critic_steps` for one of the generator; each of them is an exchange.
    """

    data_name, n_epochs, batch_size, learning_rate = "mnist", 100, 64, 1e-4
    critic_steps = 1

    def make_module(self) -> nn.Module:
        """Returns the critic, and makes the generator."""
        channels, height, width = self.data.train_batch(0)[0].shape[1:]
        units = max(8, round(512 * float(self.config.get("width", 1.0))))
        pixels = channels * height * width
        self.generator = nn.Sequential(
            nn.Linear(NOISE, units), nn.ReLU(), nn.Linear(units, pixels), nn.Unflatten(1, (channels, height, width))
        ).to(self.device)
        self.of_generator = torch.optim.RMSprop(self.generator.parameters(), self.learning_rate)
        return nn.Sequential(nn.Flatten(), nn.Linear(pixels, units), nn.LeakyReLU(0.2), nn.Linear(units, 1))

    def make_optimizer(self, params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(params, self.learning_rate)

    def critic_loss(self, real: Tensor, made: Tensor) -> Tensor:
        """Returns the critic's loss, from its scores of real and of made pictures."""
        raise NotImplementedError

    def generator_loss(self, made: Tensor) -> Tensor:
        """Returns the generator's loss, from the critic's scores of its pictures."""
        raise NotImplementedError

    def made(self, count: int) -> Tensor:
        pictures: Tensor = self.generator(torch.randn(count, NOISE, device=self.device))
        return pictures

    def train_iter(self, count: int, recorder: Recorder) -> None:
        for _ in range(self.critic_steps):
            recorder.start()
            real, _ = self.to_device(next(self._train))
            self.optimizer.zero_grad()
            loss = self.critic_loss(self.module(real), self.module(self.made(len(real)).detach()))
            torch.autograd.backward(loss)
            recorder.end("calc")
            self.optimizer.step()
        self.of_generator.zero_grad()
        of_generator = self.generator_loss(self.module(self.made(self.batch_size)))
        torch.autograd.backward(of_generator)
        self.of_generator.step()
        self.optimizer.zero_grad()
        recorder.train_error(count, loss.item(), of_generator.item())

    @torch.no_grad()
    def val_iter(self, count: int, recorder: Recorder) -> None:
        real, _ = self.to_device(self.data.val_batch(count))
        loss = self.critic_loss(self.module(real), self.module(self.made(len(real)))).item()
        recorder.val_error(count, loss, math.nan, math.nan)  # a GAN has no errors


class ClippingRMSprop(torch.optim.RMSprop):
    """Brings all weights into -CLIP .. CLIP after each step. The clipping is part of the step, since a scheme does not
    see what a loop changes in the weights by itself."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.clamp_(-CLIP, CLIP)
        return loss


class WassersteinModel(AdversarialModel):
    """WGAN (Arjovsky et al. 2017), whose critic has small weights."""

    learning_rate, critic_steps = 5e-5, 2

    def make_optimizer(self, params: list[nn.Parameter]) -> torch.optim.Optimizer:
        return ClippingRMSprop(params, self.learning_rate)

    def critic_loss(self, real: Tensor, made: Tensor) -> Tensor:
        return made.mean() - real.mean()

    def generator_loss(self, made: Tensor) -> Tensor:
        return -made.mean()


class LeastSquaresModel(AdversarialModel):
    """LSGAN (Mao et al. 2017)."""

    def critic_loss(self, real: Tensor, made: Tensor) -> Tensor:
        return 0.5 * ((real - 1).square().mean() + made.square().mean())

    def generator_loss(self, made: Tensor) -> Tensor:
        return 0.5 * (made - 1).square().mean()


GANS: dict[str, type[TorchModel]] = {"WGAN": WassersteinModel, "LSGAN": LeastSquaresModel}


def class_named(name: str) -> type[TorchModel]:
    """Returns the class of a model of Theano-MPI. Raises ConfigError for one that is not here."""
    if name in GANS:
        return GANS[name]
    if name not in CLASSIFIERS:
        known = [*CLASSIFIERS, *GANS]
        raise ConfigError(f"MODELCLASS={name}: of Theano-MPI's own there are {', '.join(known)}{nearest(name, known)}")
    return type(name, (TorchModel,), dict(CLASSIFIERS[name]))
