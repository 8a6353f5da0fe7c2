"""Holds samples, and says who gets which of them, and in which batches.

Read `partition_plan.py` first (which rank gets which samples), then `batches.py`. Nothing heavy is imported here, so
that the plan can be checked before torch is loaded. Of `engine/` it may import nothing else.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.engine.specs import DATASETS, FORMATS, DataRecipe

if TYPE_CHECKING:
    from paceline.engine.data.dataset import Splits

__all__ = ["load"]


@functools.cache
def load(recipe: DataRecipe) -> Splits:
    """Returns the data set of that recipe. Raises ConfigError when there is none or its files will not do.

    Cached per recipe: a process that loads first and forks then shares the memory with its children.
    """
    splits = _formatted(recipe) if recipe.name in FORMATS else _loaded(recipe)
    if recipe.resize:
        from paceline.engine.data.formats import pictures

        splits = pictures.resized(splits, recipe.resize)
    if recipe.augment != "none":
        from paceline.engine.data.formats import augmentation

        splits = augmentation.augmented(splits, recipe.augment)
    return splits


def _formatted(recipe: DataRecipe) -> Splits:
    """Returns data from files of another system."""
    from paceline.engine.data.formats import caffe_lmdb, cifar, hdf5, image_folder, mean_file, recordio

    mean = mean_file.read_mean(recipe.mean_file) if recipe.mean_file else None
    match recipe.name:
        case "imagefolder":
            return image_folder.load(recipe.directory, recipe.resize, mean)
        case "lmdb":
            return caffe_lmdb.load(recipe.directory, recipe.resize, mean)
        case "recordio":
            return recordio.load(recipe.directory, recipe.resize, mean)
        case "hdf5":
            return hdf5.load(recipe.directory, mean)
        case _:
            return cifar.load(recipe.name, recipe.directory, mean)


def _loaded(recipe: DataRecipe) -> Splits:
    match recipe.name:
        case "digits":
            from paceline.engine.data import digits

            return digits.load()
        case "mnist" | "fashion-mnist":
            from paceline.engine.data import mnist

            return mnist.load(recipe.name, recipe.directory)
        case "text":
            from paceline.engine.data.formats import text

            return text.load(recipe.file, recipe.context)
        case "synthetic":
            from paceline.engine.data import synthetic

            return synthetic.load(recipe.samples)
        case _:
            raise ConfigError(f"unknown data set {recipe.name!r}{nearest(recipe.name, DATASETS)}")
