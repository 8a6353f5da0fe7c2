"""The documentation as a site: every page is in mkdocs.yml, links lead somewhere, tables and the README stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import decision_index
from scripts.docs_site import DOCS, LINK, ROOT, pages, rewritten, site_path, target_of

PAGES = pages()
MKDOCS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
CODE = re.compile(r"^```.*?^```|^(?:    .*\n)+|`[^`\n]*`", re.M | re.S)
WORDS_OF_A_CELL = 30
"""At most; what needs more is a section. Records of decisions stay as they were written."""


def prose(source: Path) -> str:
    """The page without code."""
    return CODE.sub("", source.read_text(encoding="utf-8"))


def anchors(source: Path) -> set[str]:
    """Of its headings, as mkdocs makes them."""
    text = re.sub(r"^```.*?^```", "", source.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.*)", text, re.M)]
    return {"#" + re.sub(r"[-\s]+", "-", heading) for heading in found}


def test_every_page_is_in_the_navigation_once_and_nothing_else_is() -> None:
    named = re.findall(r"([\w/-]+\.md)$", MKDOCS.partition("\nnav:")[2], re.M)
    wanted = [page for page in PAGES if not re.match(r"decisions/0", page)]
    assert sorted(named) == sorted(wanted)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    lost = []
    for _, link in LINK.findall(prose(PAGES[page])):
        target = target_of(link, PAGES[page])
        if link.startswith("#"):
            target = PAGES[page], link
        if target and not target[0].exists():
            lost.append(link)
        if target and target[1] and target[1] not in anchors(target[0]):
            lost.append(link)
    assert lost == []


def test_links_out_of_the_docs_become_links_of_the_site() -> None:
    text = (
        "[a](../README.md#start) [b](../examples/02_own_loop.py) [c](papers) [d](../tests/transcripts) [e](https://f.g)"
    )
    assert rewritten(text, DOCS / "choose.md") == (
        "[a](overview.md#start) [b](repository/examples/02_own_loop.py) [c](papers/README.md) d [e](https://f.g)"
    )
    assert rewritten("![a](docs/images/race.png)", ROOT / "README.md") == "![a](images/race.png)"
    assert rewritten("| `a\\|b` | c |", DOCS / "choose.md") == "| `a|b` | c |"
    assert site_path(ROOT / "ARCHITECTURE.md") == "architecture.md"


def test_the_site_asks_no_other_site_for_anything() -> None:
    assert "font: false" in MKDOCS
    assert re.findall(r"https?://", MKDOCS) == []


def test_the_index_of_decisions_is_what_the_records_say_today() -> None:
    assert (decision_index.FOLDER / "README.md").read_text(encoding="utf-8") == decision_index.index(), (
        "run `make pages`, and commit docs/decisions/README.md"
    )


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("decisions/0")])
def test_a_cell_of_a_table_is_short(page: str) -> None:
    rows = [line for line in PAGES[page].read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    cells = [cell for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell.split()) > WORDS_OF_A_CELL] == []


def test_the_readme_can_be_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130
