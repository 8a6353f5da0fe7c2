"""Builds the wheel and the sdist, installs them in empty environments outside the checkout, and trains there.

    python -m scripts.check_package              the wheel, with the dependencies of this environment: about 15 seconds
    python -m scripts.check_package --install    wheel and sdist; pip installs all dependencies anew: some minutes

In each environment `paceline train` runs, a script of one's own runs, and every file that the package needs beside its
modules is looked for. The exit code is 1 if something fails. `make package` calls it with `--install`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("paceline", "pyproject.toml", "README.md", "LICENSE")
LIMIT_S = 1200.0
OWN_LOOP = """
import paceline, torch
images, targets = paceline.load_digits()
data = torch.utils.data.TensorDataset(images.flatten(1), targets)
model = torch.nn.Linear(64, 10)
pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="esync")
for x, y in pace.batches(data, batch_size=32, epochs=1):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    pace.step()
pace.close()
print("steps:", pace.steps)
"""


def build(into: Path) -> tuple[Path, Path]:
    """Builds from a copy of the sources, so that nothing is left in the checkout; returns the wheel and the sdist."""
    copy = into / "sources"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into / "dist"), str(copy)], into)
    (wheel,), (sdist,) = (into / "dist").glob("*.whl"), (into / "dist").glob("*.tar.gz")
    return wheel, sdist


def missing_files(wheel: Path, sdist: Path) -> list[str]:
    """Returns the files of the package in the checkout that the wheel or the sdist lacks, each with where it lacks."""
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "paceline").rglob("*") if path.is_file()}
    ours = {name for name in ours if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as packed:
        in_wheel = set(packed.namelist())
    with tarfile.open(sdist) as packed:
        in_sdist = {name.partition("/")[2] for name in packed.getnames()}
    lacks = [f"{name}: not in the wheel" for name in sorted(ours - in_wheel)]
    return lacks + [f"{name}: not in the sdist" for name in sorted(ours - in_sdist)]


def environment(folder: Path, archive: Path, *, installs: bool) -> Path:
    """Makes a virtual environment in `folder` and installs `archive` there; returns its folder of programs.

    installs: pip installs the dependencies too; otherwise they are found where this interpreter has its packages.
    """
    venv.create(folder, with_pip=installs, symlinks=True)
    python = folder / "bin" / "python"
    if installs:
        run([str(python), "-m", "pip", "install", "--quiet", str(archive)], folder)
        return folder / "bin"
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    # A .pth file adds folders and does not read theirs: an editable installation of the checkout stays outside.
    shared = [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "shared.pth").write_text("\n".join(shared) + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    run([*pip, "--no-build-isolation", "--force-reinstall", str(archive)], folder)
    return folder / "bin"


def use(programs: Path, folder: Path) -> None:
    """Trains by the command, and by a script of one's own, in an empty folder. Raises CalledProcessError."""
    folder.mkdir()
    where = "import paceline; print(paceline.__file__)"
    found = run([str(programs / "python"), "-c", where], folder).strip()
    if not Path(found).is_relative_to(programs.parent):
        raise SystemExit(f"the environment in {programs.parent} imports {found}")
    run([str(programs / "paceline"), "train", "--steps", "5", "--workers", "2", "--out", "run"], folder)
    script = folder / "own.py"
    script.write_text(OWN_LOOP, encoding="utf-8")
    run([str(programs / "python"), str(script)], folder)


def run(command: Sequence[str], folder: Path) -> str:
    """Runs `command` in `folder` with the variables of a bare shell; returns what it printed.

    Raises SystemExit, with the end of its output, if it fails.
    """
    bare = {
        name: os.environ[name] for name in ("PATH", "HOME", "PIP_INDEX_URL", "PIP_CONFIG_FILE") if name in os.environ
    }
    done = subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def check(folder: Path, *, installs: bool) -> None:
    """Builds below `folder`, installs and uses what the module says. Raises SystemExit where something fails."""
    wheel, sdist = build(folder)
    if lacks := missing_files(wheel, sdist):
        raise SystemExit("\n".join(lacks))
    for archive in (wheel, sdist) if installs else (wheel,):
        print(f"{archive.name} ({archive.stat().st_size / 1e6:.1f} MB)", flush=True)
        name = "wheel" if archive is wheel else "sdist"
        programs = environment(folder / name, archive, installs=installs)
        use(programs, folder / f"{name}-runs")
        print("  installed, trained by the command and by a script of one's own", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the dependencies anew")
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), installs=parser.parse_args().install)


if __name__ == "__main__":
    main()
