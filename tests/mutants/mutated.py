"""Runs `paceline` with one line of the package changed: a planted bug, as a slip of a hand would make it.

    python -m tests.mutants.mutated NAME fuzz --seconds 60

NAME is a mutant of tests/mutants/live_path.toml. The file on disk stays as it is: an import hook changes the source
when the module is imported.
"""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("live_path.toml")
ADDED_LATER = {"halos", "muloco", "noloco", "prague", "tiers"}
"""Schemes that came after the seeds of the list: a seed draws another run where there are others to draw from."""


@dataclass(frozen=True)
class Mutant:
    """A planted bug: in `file`, `old`, which stands there once, is replaced by `new`.

    A seed of the fuzzer finds it, or the replay of a recording of tests/recordings.
    """

    name: str
    area: str
    file: str
    old: str
    new: str
    seed: int = -1
    recording: str = ""

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")

    @property
    def command(self) -> list[str]:
        """The words of the `paceline` command that finds it."""
        import paceline.schemes  # noqa: F401  enters them into the registry
        from paceline.core.scheme import names

        if self.recording:
            return ["replay", f"tests/recordings/{self.recording}.jsonl"]
        seed = ["--first", str(self.seed), "--seeds", "1", "--shrink-seconds", "0"]
        return ["fuzz", "--schemes", ",".join(sorted(set(names()) - ADDED_LATER)), *seed]

    def source(self) -> str:
        """The changed source. Raises ValueError unless the line stands there exactly once."""
        source = (ROOT / self.file).read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {source.count(self.old)} times in {self.file}")
        return source.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    """All of the list."""
    return [Mutant(name=name, **entry) for name, entry in tomllib.loads(LIST.read_text()).items()]


class _Loader(SourceFileLoader):
    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(ROOT / mutant.file))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._mutant.source().encode(), self.path)  # type: ignore[return-value]


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self.used = False

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        self.used = True
        loader = _Loader(self._mutant)
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


def main(words: Sequence[str]) -> int:
    name, *command = words
    finder = _Finder(next(mutant for mutant in mutants() if mutant.name == name))
    sys.meta_path.insert(0, finder)
    from paceline.cli.main import main as paceline

    code = paceline(command)
    assert finder.used, f"{name}: {finder._mutant.module} is not imported by `paceline {command[0]}`"
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
