"""The digits of scikit-learn, split and normalised."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import torch

import paceline
from paceline.engine.data import digits, load
from paceline.engine.specs import DataRecipe
from tests.engine.data.files import assert_usable


def test_digits_are_split_normalised_and_complete() -> None:
    splits = load(DataRecipe(name="digits"))
    assert_usable(splits, (1, 8, 8))
    assert (len(splits.train), len(splits.test)) == (1437, 360)
    assert abs(float(splits.train.x.mean())) < 0.02
    assert abs(float(splits.train.x.std()) - 1) < 0.02
    assert len(torch.bincount(splits.test.y)) == 10


def test_no_test_digit_is_also_a_training_digit() -> None:
    splits = load(DataRecipe(name="digits"))
    train = {row.numpy().tobytes() for row in splits.train.x}
    assert not train & {row.numpy().tobytes() for row in splits.test.x}


def test_digits_are_those_of_scikit_learn() -> None:
    """Byte for byte. Its library is not imported: it would bring a second OpenMP, after which forks may crash."""
    digest = hashlib.sha256(digits.FILE.read_bytes()).hexdigest()
    assert digest == "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"  # of scikit-learn
    images, labels = paceline.load_digits()
    assert (images.shape, labels.shape) == ((1797, 1, 8, 8), (1797,))
    assert (float(images.min()), float(images.max())) == (0.0, 1.0)
    assert torch.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_a_run_under_sgd_starts_without_scikit_learn_and_torchs_compiler_which_take_seconds() -> None:
    starts = (
        "import sys; from paceline.engine import data, specs; from paceline.engine.optim import optimizers; "
        "data.load(specs.DataRecipe()); "
        "optimizers.make_rule(specs.OptimizerRecipe()); print({'sklearn', 'scipy', 'torch._dynamo'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", starts], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
