"""Sentences of papers, as this package quotes them: a test that leans on one fails when it is edited away."""

from __future__ import annotations

from types import ModuleType


def says(module: ModuleType, sentence: str) -> bool:
    """Whether the docstring of `module` has that sentence, whatever the line breaks."""
    return " ".join(sentence.split()) in " ".join((module.__doc__ or "").split())
