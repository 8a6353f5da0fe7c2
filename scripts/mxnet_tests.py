"""Fetches MXNet's own tests of KVStore and Trainer, and runs them on Paceline's stores. Nothing of them is kept here.

    python -m scripts.mxnet_tests                      # fetches one commit of apache/mxnet
    python -m scripts.mxnet_tests --from DIR           # takes the clone DIR/apache/mxnet or DIR/apache+mxnet
    python -m scripts.mxnet_tests --only test_kvstore.py

`mxnet` is the module in `tests/compat/mxnet_shim`. Distributed tests run under `paceline launch -n 2 -s 2`. Prints a
row for each file and mode; the exit code is 1 if one fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIM = ROOT / "tests" / "compat" / "mxnet_shim"
FOLDER = ROOT / "build" / "mxnet-tests"
REPOSITORY, COMMIT = "apache/mxnet", "699d1ce01a52c8b1b4acbae6b10cb0f50c7f33cc"
UNIT, NIGHTLY, GPU = "tests/python/unittest", "tests/nightly", "tests/python/gpu"
FILES = (
    f"{UNIT}/common.py",
    "tests/python/common/models.py",
    f"{UNIT}/test_kvstore.py",
    f"{UNIT}/test_kvstore_custom.py",
    f"{UNIT}/test_gluon_trainer.py",
    f"{GPU}/test_kvstore_gpu.py",
    f"{NIGHTLY}/test_kvstore.py",
    f"{NIGHTLY}/dist_sync_kvstore.py",
    f"{NIGHTLY}/dist_async_kvstore.py",
    f"{NIGHTLY}/dist_device_sync_kvstore.py",
    f"{NIGHTLY}/dist_device_sync_kvstore_custom.py",
)
SECONDS_MAX = 900


@dataclass(frozen=True)
class Case:
    """One file of tests in one mode. `distributed`: as two workers and two servers. `skipped`: why it is not run."""

    file: str
    arguments: tuple[str, ...] = ()
    distributed: bool = False
    skipped: str = ""

    def __str__(self) -> str:
        return " ".join([Path(self.file).name, *self.arguments])


def _dist(file: str, *arguments: str, skipped: str = "") -> Case:
    return Case(f"{NIGHTLY}/{file}", arguments, distributed=True, skipped=skipped)


STALE = "it calls train_mnist.parse_args, which MXNet's own v1.x no longer has"
CASES = (
    Case(f"{UNIT}/test_kvstore.py"),
    Case(f"{UNIT}/test_kvstore_custom.py"),
    Case(f"{UNIT}/test_gluon_trainer.py"),
    Case(f"{GPU}/test_kvstore_gpu.py"),
    Case(f"{NIGHTLY}/test_kvstore.py"),
    _dist("dist_sync_kvstore.py", "--type=gluon_step_cpu"),
    _dist("dist_sync_kvstore.py", "--type=gluon_sparse_step_cpu"),
    _dist("dist_sync_kvstore.py", "--type=invalid_cpu"),
    _dist("dist_sync_kvstore.py", "--type=gluon_type_cpu"),
    _dist("dist_sync_kvstore.py"),
    _dist("dist_sync_kvstore.py", "--no-multiprecision"),
    _dist("dist_sync_kvstore.py", "--type=compressed_cpu"),
    _dist("dist_sync_kvstore.py", "--type=compressed_cpu", "--no-multiprecision"),
    _dist("dist_sync_kvstore.py", "--type=init_gpu"),
    _dist("dist_async_kvstore.py"),
    _dist("dist_device_sync_kvstore.py"),
    _dist("dist_device_sync_kvstore_custom.py"),
    _dist("dist_device_sync_kvstore_custom.py", "--p3", skipped="MXNet's P3 van is not rebuilt"),
    _dist(
        "test_server_profiling.py", skipped="MXNet's profiler is not rebuilt: traces are exported (docs/observing.md)"
    ),
    _dist("dist_lenet.py", skipped=STALE),
    Case(f"{NIGHTLY}/multi_lenet.py", skipped=STALE),
)
"""All tests of KVStore in MXNet v1.x, in the modes in which its own CI runs them."""


def clone_of(source: Path | None, folder: Path) -> Path:
    """Returns a git directory with the commit. Raises SystemExit where `source` has none."""
    if source is None:
        clone = folder / "clone"
        if not clone.exists():
            subprocess.run(["git", "init", "-q", "--bare", clone], check=True)
            fetch = ["git", f"--git-dir={clone}", "fetch", "-q", "--depth=1", "--filter=blob:none"]
            subprocess.run([*fetch, f"https://github.com/{REPOSITORY}", COMMIT], check=True)
            config = ["git", f"--git-dir={clone}", "config"]
            subprocess.run([*config, "remote.origin.url", f"https://github.com/{REPOSITORY}"], check=True)
            subprocess.run([*config, "remote.origin.promisor", "true"], check=True)
        return clone
    for name in (REPOSITORY, REPOSITORY.replace("/", "+")):
        for found in (source / name, source / name / ".git", source / name / "repo"):
            if (found / "HEAD").exists():
                return found
    raise SystemExit(f"no clone of {REPOSITORY} in {source}: leave --from out to fetch it")


def fetch(source: Path | None, folder: Path = FOLDER) -> Path:
    """Writes the files of tests, as they are, below `folder`, and returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    clone = clone_of(source, folder)
    for name in FILES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        show = ["git", f"--git-dir={clone}", "show", f"{COMMIT}:{name}"]
        target.write_bytes(subprocess.run(show, check=True, capture_output=True).stdout)
    return folder


def command_of(case: Case, folder: Path) -> list[str]:
    """Returns the command that runs a case in the folder of its file."""
    name = Path(case.file).name
    if not case.distributed and not case.file.startswith(NIGHTLY):
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "-c", os.devnull, name]
    script = [sys.executable, name, *case.arguments]
    launch = [
        sys.executable,
        "-m",
        "paceline",
        "launch",
        "-n",
        "2",
        "-s",
        "2",
        "--out",
        str(folder / "runs" / str(case)),
    ]
    return [*launch, *script] if case.distributed else script


def run(case: Case, folder: Path) -> tuple[int, int, str]:
    """Returns how many tests passed and failed, and what the command printed last."""
    path = os.pathsep.join([str(SHIM), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command_of(case, folder),
        cwd=folder / Path(case.file).parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    said = f"{done.stdout}\n{done.stderr}"
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", said)}
    if counts:
        return counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0), said
    return int(done.returncode == 0), int(done.returncode != 0), said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="folder of local clones")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this text in their name")
    options = parser.parse_args()
    folder, failures, sums = fetch(options.source), 0, [0, 0, 0]
    for case in CASES:
        if options.only not in str(case):
            continue
        passed, failed, said = (0, 0, "") if case.skipped else run(case, folder)
        sums = [a + b for a, b in zip(sums, (passed, failed, bool(case.skipped)), strict=True)]
        failures += failed
        print(f"{case!s:60} {case.skipped or f'{passed} passed, {failed} failed'}", flush=True)
        if failed:
            print(said[-3000:])
    print("{} passed, {} failed, {} not run".format(*sums))
    return int(failures > 0)


if __name__ == "__main__":
    raise SystemExit(main())
