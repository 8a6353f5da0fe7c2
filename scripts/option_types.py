"""Writes paceline/config/option_types.py: the keyword arguments of `train` and `join` as type checkers see them.

`make pages` runs it. The names and types are those of the sections and of the schemes' parameters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from paceline.config import scheme_settings, settings
from paceline.config.parsing import LISTS
from paceline.core.scheme import names

FILE = Path(__file__).resolve().parent.parent / "paceline" / "config" / "option_types.py"

HEAD = '''\
"""The keyword arguments of `paceline.train` and `paceline.join` for type checkers. Made by `make pages`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict
'''


def option_types() -> str:
    """Returns the text of the file. Raises ValueError where schemes have parameters of one name and several types."""
    options = {setting.keyword: shown(setting.type) for setting in settings()}
    parameters: dict[str, str] = {}
    for name in names():
        for setting in scheme_settings(name):
            if parameters.setdefault(setting.key, shown(setting.type)) != shown(setting.type):
                raise ValueError(f"{name}.{setting.key} has another type than this parameter of another scheme")
    return (
        HEAD
        + typed_dict("TrainOptions", "The flags of `paceline train`.", options)
        + typed_dict("SchemeParameters", "The parameters of all schemes.", dict(sorted(parameters.items())))
    )


def shown(kind: Any) -> str:
    """Returns the annotation of an argument: a list will do where the configuration has a tuple."""
    return f"Sequence[{get_args(kind)[0].__name__}]" if kind in LISTS else str(kind.__name__)


def typed_dict(name: str, what: str, entries: dict[str, str]) -> str:
    lines = [f"    {key}: {kind}\n" for key, kind in entries.items()]
    return f'\n\nclass {name}(TypedDict, total=False):\n    """{what}"""\n\n' + "".join(lines)


if __name__ == "__main__":
    FILE.write_text(option_types(), encoding="utf-8")
