"""`paceline cite` prints BibTeX."""

from __future__ import annotations

import pytest

from paceline.cli.main import main
from paceline.core.scheme import names

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", names())
def test_a_citation_is_one_entry_of_bibtex(name: str, capsys: Capture) -> None:
    assert main(["cite", name]) == 0
    text = capsys.readouterr().out.strip()
    assert text.startswith("@")
    assert text.endswith("}")
    assert text.count("{") == text.count("}")
    for field in ("author", "title", "year"):
        assert f"  {field} = {{" in text
