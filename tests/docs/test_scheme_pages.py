"""docs/schemes is what the generator would write."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from paceline.cli.support import scheme_catalogue
from paceline.core.scheme import limits_of, lookup, names
from scripts import scheme_pages

REPAIR = "run `make pages`, look at the pictures, and commit docs/schemes"


def on_disk(name: str) -> str:
    path = scheme_pages.FOLDER / name
    assert path.is_file(), f"docs/schemes/{name} is missing: {REPAIR}"
    return path.read_text()


@pytest.mark.parametrize("name", names())
def test_the_page_of_a_scheme_is_what_its_file_says_today(name: str) -> None:
    assert on_disk(f"{name}.md") == scheme_pages.page(name), f"docs/schemes/{name}.md is out of date: {REPAIR}"


def test_the_index_of_schemes_is_what_the_registry_says_today() -> None:
    assert on_disk("README.md") == scheme_pages.index(), f"docs/schemes/README.md is out of date: {REPAIR}"


def test_no_page_or_figure_is_left_of_a_scheme_that_is_gone() -> None:
    wanted = {f"{name}.{kind}" for name in names() for kind in ("md", "png")} | {"README.md"}
    assert {path.name for path in scheme_pages.FOLDER.iterdir()} == wanted, REPAIR


@pytest.mark.parametrize("name", names())
def test_a_page_has_the_papers_box_every_parameter_and_the_citation(name: str) -> None:
    page = scheme_pages.page(name)
    assert scheme_catalogue.description(name) in page
    assert re.search(r"^    .*worker [a-z]:", page, re.MULTILINE)
    assert lookup(name).paper.bibtex() in page
    for key in limits_of(lookup(name)):
        assert f"| `--{name}.{key.replace('_', '-')}` |" in page


@pytest.mark.parametrize("name", names())
def test_a_docstring_read_as_markdown_is_paragraphs_and_boxes_and_nothing_else(name: str) -> None:
    """No letter of a paper's box or a formula in the text turns into emphasis, a list or a link."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(scheme_catalogue.description(name))
    inside = [child for token in tokens for child in token.children or ()]
    assert {token.type for token in tokens} == {"paragraph_open", "inline", "paragraph_close", "code_block"}
    assert [child.content for child in inside if child.type not in ("text", "softbreak", "code_inline")] == []


def test_a_figure_can_be_drawn_anew_and_is_the_same_both_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheme_pages, "FOLDER", tmp_path)
    drawn = []
    for _ in range(2):
        scheme_pages.draw("gosgd")
        drawn.append((tmp_path / "gosgd.png").read_bytes())
    assert drawn[0] == drawn[1]
    assert struct.unpack(">II", drawn[0][16:24])[0] == 1100
    assert len(drawn[0]) < 50_000
