"""Public scripts, converted, under several schemes on uneven workers: do they reach the loss of the script alone?

    python benchmarks/scripts/run.py [--from DIR] [--scripts mnist,vae] [--schemes bsp,esync] [--rounds 3]
    python benchmarks/scripts/run.py --scripts nanogpt --variant late --schemes none

The script alone and the converted one train as many samples. The latter runs as three workers, one of which is three
times as slow (`paceline launch -n 3 -s 1 --slowdown 1,1,3 --step-ms 30`). It holds where its last loss is at most 5 %
above that of the script alone. Each round has a seed of its own, and medians over the rounds are compared. torchvision
is stood in for by `stand_ins/`, and `local_models.py` makes the models and data of Hugging Face and timm, so that
nothing is downloaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pickle
import re
import shutil
import statistics
import sys
import sysconfig
import tempfile
from array import array
from pathlib import Path
from typing import Any

from commands import end_on_signals, output_to_end
from sources import HERE, catalogue, fetch

WORSE_MAX = 1.05
SECONDS_MAX = 600
LAUNCH = ["-m", "paceline", "launch", "-n", "3", "-s", "1", "--slowdown", "1,1,3", "--step-ms", "30"]
LAUNCH += ["--lr-scale", "none"]  # the rates of the catalogue are those of its schemes


def write_characters(folder: Path) -> None:
    """Writes text as nanoGPT reads it: Python's own sources, a number for each character."""
    home = Path(sysconfig.get_paths()["stdlib"])
    text = "".join((home / name).read_text() for name in ("argparse.py", "inspect.py", "typing.py"))
    letters = sorted(set(text))
    numbers = array("H", map({letter: at for at, letter in enumerate(letters)}.__getitem__, text))
    cut = len(numbers) * 9 // 10
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.bin").write_bytes(numbers[:cut].tobytes())
    (folder / "val.bin").write_bytes(numbers[cut:].tobytes())
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(letters)}))


def output_of(command: list[str], folder: Path, of: dict[str, Any], scheme: str = "") -> str:
    """Runs Python in `folder`, and returns what it prints. Raises SystemExit if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(HERE / of.get("stand_ins", "stand_ins")), "OMP_NUM_THREADS": "1"}
    environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "cache"), "TQDM_DISABLE": "1"}
    if scheme:
        parameters = of.get("parameters", {}).get(scheme, {})
        environment |= {"PACELINE_SCHEME": scheme, "PACELINE_SCHEME_PARAMETERS": json.dumps(parameters)}
    return output_to_end([sys.executable, *command], folder, environment, SECONDS_MAX)


def loss_of(command: list[str], folder: Path, of: dict[str, Any], scheme: str = "") -> float:
    """Returns the last loss that a command prints, or the mean of the last ones that the catalogue asks for.

    Raises SystemExit if the command fails or prints none.
    """
    found = re.findall(of["loss"], output_of(command, folder, of, scheme))
    if not found:
        raise SystemExit(f"{' '.join(command)} in {folder} prints no loss: {of['loss']}")
    last = [float(loss) for loss in found[-of.get("last", 1) :]]
    return sum(last) / len(last)


def write_data(of: dict[str, Any], home: Path) -> None:
    """Writes what both versions of a script find beside them."""
    for version in ("alone", "shared"):
        (home / version / "results").mkdir(exist_ok=True)
        if of.get("data") == "characters":
            write_characters(home / version / "data" / "characters")
    if "local" in of:
        output_of([str(HERE / "local_models.py"), of["local"], str(home / "local")], home, of)
        for version in ("alone", "shared"):
            shutil.copytree(home / "local", home / version, dirs_exist_ok=True)


def check_packages(name: str, of: dict[str, Any]) -> None:
    """Raises SystemExit where packages that the script needs are missing."""
    missing = [package for package in of.get("needs", []) if importlib.util.find_spec(package) is None]
    if missing:
        raise SystemExit(f"{name} needs {', '.join(missing)}: pip install -e '.[scripts]'")


def median_of(losses: list[float]) -> str:
    """Returns the median, and the range where there are several."""
    middle = f"{statistics.median(losses):.4f}"
    return middle if len(losses) == 1 else f"{middle} ({min(losses):.4f} to {max(losses):.4f})"


def varied(name: str, of: dict[str, Any], variant: str) -> dict[str, Any]:
    """Returns a script's entry with what one of its variants has instead. Raises SystemExit if there is no such."""
    if variant not in (variants := of.get("variants", {})):
        raise SystemExit(f"{name} has no variant {variant!r} (it has: {', '.join(variants) or 'none'})")
    replace = [*of.get("replace", []), *variants[variant].get("replace", [])]
    return {**of, **variants[variant], "replace": replace}


def run(name: str, of: dict[str, Any], schemes: list[str], options: argparse.Namespace, folder: Path) -> bool:
    """Prints a row for each scheme. Returns whether all hold."""
    check_packages(name, of)
    of = varied(name, of, options.variant) if options.variant else of
    home, entry = fetch(name, of, options.source, folder), Path(of["entry"]).name
    write_data(of, home)
    rule = ["--samples", str(of["samples"])] if "samples" in of else []
    seeds = [[of["seed"].format(seed)] if "seed" in of else [] for seed in range(1, options.rounds + 1)]

    def settings(version: str, seed: list[str]) -> list[str]:
        return [*of.get("settings", []), *of[version], *seed]

    alone = [loss_of([entry, *settings("alone", seed)], home / "alone", of) for seed in seeds]
    print(f"{name:20} {'alone':8} {median_of(alone):32}", flush=True)
    holds = True
    for scheme in schemes:
        more = of.get("arguments", {}).get(scheme, [])
        script = [[sys.executable, entry, *settings("shared", seed), *more] for seed in seeds]
        losses = [loss_of([*LAUNCH, *rule, *command], home / "shared", of, scheme) for command in script]
        ratio = statistics.median(losses) / statistics.median(alone)
        holds &= ratio <= WORSE_MAX
        verdict = "" if ratio <= WORSE_MAX else "FALLS SHORT"
        print(f"{name:20} {scheme:8} {median_of(losses):32} {ratio - 1:+8.1%}  {verdict}", flush=True)
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="local clones, DIR/OWNER/NAME")
    parser.add_argument("--scripts", default=",".join(catalogue()), help="default: %(default)s")
    parser.add_argument("--schemes", default="bsp,asp,esync,diloco", help="default: %(default)s; `none`: alone")
    parser.add_argument("--variant", metavar="NAME", help="an experiment that the catalogue has for these scripts")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of each, with seeds 1 to N")
    options = parser.parse_args()
    end_on_signals()
    schemes = [] if options.schemes == "none" else options.schemes.split(",")
    print(f"{'script':20} {'scheme':8} {'last loss':32}")
    with tempfile.TemporaryDirectory(prefix="scripts-") as folder:
        every = [run(name, catalogue()[name], schemes, options, Path(folder)) for name in options.scripts.split(",")]
    return 0 if all(every) else 1


if __name__ == "__main__":
    sys.exit(main())
