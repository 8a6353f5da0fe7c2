"""Help texts at the width of the terminal."""

from __future__ import annotations

from paceline.observe.formatting.wrapping import wrapped

TEXT = """Lines of a paragraph
are filled together, as far as the width goes.

examples:
  run a        with a note that does not fit the line
  run a very long command with flags       and a note
  name         more of it than fits
               and more below

- An item that is too long for one line,
  with more.
- Another."""


def test_paragraphs_are_filled_and_lists_stay_lists() -> None:
    assert wrapped(TEXT, 40).splitlines() == [
        "Lines of a paragraph are filled",
        "together, as far as the width goes.",
        "",
        "examples:",
        "  run a        with a note that does not",
        "               fit the line",
        "  run a very long command with flags",
        "      and a note",
        "  name         more of it than fits and",
        "               more below",
        "",
        "- An item that is too long for one line,",
        "  with more.",
        "- Another.",
    ]


def test_a_word_that_is_too_long_is_not_cut() -> None:
    assert wrapped("see https://example.org/a/very/long/address there", 20).splitlines() == [
        "see",
        "https://example.org/a/very/long/address",
        "there",
    ]
