"""Prepares the pages for mkdocs (`make docs`): a hook of mkdocs.yml, which mkdocs calls by the names of its events.

Pages are written to be read in the repository, where they link to files outside `docs/`. On the site

- README.md, ARCHITECTURE.md, CONTRIBUTING.md and CHANGELOG.md are pages, under the names in TOP_PAGES;
- any other file that a page links to is copied below `repository/`;
- a link to a folder leads to its README.md, and where there is none the link is plain text;
- a `|` in code within a table is written without the backslash that GitHub's Markdown asks for.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TOP_PAGES = {
    "README.md": "overview.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")

ROW = re.compile(r"^\|.*", re.M)
CODE = re.compile(r"`[^`]*`")


def target_of(link: str, source: Path) -> tuple[Path, str] | None:
    """Returns the file that a relative link of the page `source` names, and its anchor; None for any other link."""
    path, _, anchor = link.partition("#")
    if not path or "://" in link or link.startswith(("/", "mailto:")):
        return None
    target = Path(os.path.normpath(source.parent / path))
    if target.is_dir() and (target / "README.md").is_file():
        target /= "README.md"
    return target, anchor and f"#{anchor}"


def site_path(target: Path) -> str:
    """Returns where a file of the repository lies on the site."""
    inside = target.relative_to(ROOT)
    if str(inside) in TOP_PAGES:
        return TOP_PAGES[str(inside)]
    return str(target.relative_to(DOCS)) if target.is_relative_to(DOCS) else f"repository/{inside}"


def pages() -> dict[str, Path]:
    """Returns the source of every page, by its path on the site."""
    sources = [*(ROOT / name for name in TOP_PAGES), *DOCS.rglob("*.md")]
    return {site_path(source): source for source in sources}


def rewritten(text: str, source: Path) -> str:
    """Returns the page's text with links as they are on the site."""
    folder = os.path.dirname(site_path(source))

    def link(match: re.Match[str]) -> str:
        found = target_of(match[2], source)
        if found is None or not found[0].exists() or not found[0].is_relative_to(ROOT):
            return match[0]  # not a link to a file of the repository; mkdocs reports it if it is broken
        target, anchor = found
        if target.is_dir():
            return match[1]
        return f"[{match[1]}]({os.path.relpath(site_path(target), folder or '.')}{anchor})"

    def row(match: re.Match[str]) -> str:
        return CODE.sub(lambda code: code[0].replace("\\|", "|"), match[0])

    return ROW.sub(row, LINK.sub(link, text))


def linked_files() -> set[Path]:
    """Returns the files outside of the pages that some page links to."""
    found = set()
    for source in pages().values():
        for _, link in LINK.findall(source.read_text(encoding="utf-8")):
            target = target_of(link, source)
            if target and target[0].is_file() and target[0].is_relative_to(ROOT):
                found.add(target[0])
    return {file for file in found if not file.is_relative_to(DOCS) and str(file.relative_to(ROOT)) not in TOP_PAGES}


# ---- called by mkdocs -----------------------------------------------------------------------------------------
def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    outside = [ROOT / name for name in TOP_PAGES] + sorted(linked_files())
    for file in outside:
        files.append(File.generated(config, site_path(file), abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return rewritten(markdown, pages()[page.file.src_uri])
