"""Stands in for torchvision where it is not installed: the few names that the fetched scripts use, on small data."""

from torchvision import datasets, transforms, utils

__all__ = ["datasets", "transforms", "utils"]
