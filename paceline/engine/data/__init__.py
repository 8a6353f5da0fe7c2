"""Holds samples, and says who gets which of them, and in which batches.

Read `partition_plan.py` first (which rank gets which samples), then `batches.py`. Nothing heavy is imported here, so
that the plan can be checked before torch is loaded. Of `engine/` it may import nothing else.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.engine.specs import DATASETS, DataRecipe

if TYPE_CHECKING:
    from paceline.engine.data.dataset import Splits

__all__ = ["load"]


@functools.cache
def load(recipe: DataRecipe) -> Splits:
    """Returns the data set of that recipe. Raises ConfigError when there is none or its files will not do.

    Cached per recipe: a process that loads first and forks then shares the memory with its children.
    """
    splits = _loaded(recipe)
    if not recipe.resize:
        return splits
    from paceline.engine.data.formats.pictures import resized

    return resized(splits, recipe.resize)


def _loaded(recipe: DataRecipe) -> Splits:
    match recipe.name:
        case "digits":
            from paceline.engine.data import digits

            return digits.load()
        case "mnist" | "fashion-mnist":
            from paceline.engine.data import mnist

            return mnist.load(recipe.name, recipe.directory)
        case "synthetic":
            from paceline.engine.data import synthetic

            return synthetic.load(recipe.samples)
        case _:
            raise ConfigError(f"unknown data set {recipe.name!r}{nearest(recipe.name, DATASETS)}")
