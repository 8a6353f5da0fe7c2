"""The report is one file that loads nothing, and escapes every name."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from paceline.observe.plots import curves
from paceline.observe.plots.catalogue import PLATES, timelines
from paceline.observe.plots.html_report import DARK, inlined, report
from paceline.observe.plots.style import svg
from tests.observe.plots.drawing import drawn, run


class Page(HTMLParser):
    """Which elements there are, and what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.refers: list[str] = []
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.refers += [v for k, v in attrs if v and k in ("src", "href", "xlink:href", "srcset", "action", "data")]
        self.names += [v for k, v in attrs if v and k == "id"]


EVIL = "</text><script>alert(1)</script>$x$"


def test_the_report_asks_nobody_for_anything_and_escapes_every_name() -> None:
    named = run("bsp", facts={"data.directory": EVIL, "data.partition": "class"}, reason=EVIL)
    there = drawn(named, run("bsp"), run("esync", model=EVIL))
    text = report(there, [*PLATES, *timelines(there)], [EVIL])
    page = Page(text)
    assert "script" not in page.tags
    assert page.tags.count("svg") >= 6
    assert all(reference.startswith("#") for reference in page.refers)
    assert len(page.names) == len(set(page.names))
    assert "url(http" not in text
    assert "@import" not in text
    assert "&lt;script&gt;" in text
    assert "$x$" in text  # as it is written, and not as a formula


def test_every_figure_says_its_numbers_to_who_does_not_see_it() -> None:
    there = drawn(run("bsp"), run("esync"))
    text = report(there, [*PLATES, *timelines(there)])
    figures = re.findall(r'<div class="drawn"[^>]*role="img"[^>]*aria-label="([^";]+); its numbers', text)
    assert len(figures) == text.count('class="drawn"') >= 6
    assert re.findall(r"<summary>([^<]+): the numbers</summary><div", text) == figures
    described = re.findall(r'aria-describedby="([^"]+)"', text)
    assert len(described) == len(figures)
    assert all(f'<figcaption id="{name}">' in text for name in described)


def test_what_a_figure_refers_to_is_in_it() -> None:
    text = inlined(svg(curves.accuracy(drawn(run("bsp", 0), run("bsp", 1)), by="time")))
    wanted = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'xlink:href="#([^"]+)"', text))
    assert wanted
    assert wanted <= set(re.findall(r'id="([^"]+)"', text))


def test_words_and_axes_take_their_colours_from_the_page() -> None:
    text = inlined(svg(curves.accuracy(drawn(run("bsp")), by="time")))
    assert not any(re.search(colour, text, re.I) for colour in DARK)
    assert "var(--c222222)" in text
