"""Colours, dashes and marks of schemes; labels that cover nobody."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import paceline.schemes  # noqa: F401  registers them
from paceline.core import scheme
from paceline.observe import watch
from paceline.observe.plots import style as canvas
from paceline.observe.plots.style import ACTIVITIES, spread_out


def test_labels_keep_their_order_and_lie_on_nobody() -> None:
    moved = spread_out([0.5, 0.5, 0.5, 0.98, 0.99], 0.05)
    assert all(b - a >= 0.05 - 1e-9 for a, b in pairwise(moved))
    assert moved[-1] == 1.0


def test_every_scheme_has_a_look_of_its_own() -> None:
    assert sorted(canvas.SCHEMES) == sorted(scheme.names())
    known = canvas.looks(canvas.SCHEMES)
    assert known == list(range(len(canvas.SCHEMES)))
    assert len({str(canvas.look(n)) for n in known}) == len(known)
    twice = canvas.looks(["ssp", "bsp", "ssp", "mine", "mine"])
    assert twice[:2] == canvas.looks(["ssp", "bsp"])
    assert len(set(twice)) == 5


def test_the_page_has_the_colours_of_the_figures() -> None:
    style = (Path(watch.__file__).parent / "page" / "watch.css").read_text("utf-8")
    for activity, colour in ACTIVITIES.items():
        assert f"--{activity}: {colour.lower()};" in style


def test_a_figure_that_is_laid_out_once_has_the_same_pixels(tmp_path: Path) -> None:
    def figure() -> Any:
        made, (top, _) = canvas.empty((2.0, 1.0), inches=(4.0, 3.0))
        canvas.title(top, "a title", "and what is to be said about it")
        canvas.activity_legend(top)
        return made

    canvas.save(figure(), tmp_path / "once.png")
    figure().savefig(tmp_path / "twice.png", dpi=canvas.DPI)
    once, twice = (np.asarray(Image.open(tmp_path / name)) for name in ("once.png", "twice.png"))
    assert once.shape == twice.shape == (300, 400, 4)
    assert (once == twice).all()
