"""Pictures of the live page for docs/images: `python -m scripts.screenshots [FOLDER]`.

Simulates two runs (four workers of which one is slow, with a real model; a thousand workers, timing only), opens each
with `paceline watch` in a headless Chromium (see `make page-test`) and takes watch-*.png: light, dark, on a phone, and
with a thousand workers. Where there can be a lab (see `make lab-test`), a live run by ssh over three hosts is watched
too, one of them with a quarter of a CPU and one behind 50 Mbit/s: while all is well, on a phone, and, dark, after the
third host has died. So small a model needs less than that quarter, so the steps there are made four times as long.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.cli.main import main as paceline
from tests.lab.lab import missing, opened
from tests.lab.launch_run import Launched

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
FOUR = "simulate --scheme bsp --slowdown 1,1,1,4 --step-ms 20 --seconds 12 --epochs 0"
THOUSAND = "simulate --scheme ssp --cluster spot-1000 --timing-only --seconds 6 --epochs 0"
SETTLED_MS = 120_000
HOSTS = "h1 slots=2 group=near\nh2 group=near role=worker\nh3 group=far\n"
LAUNCH = "-n 4 -s 2 -H hosts --launcher ssh --ssh-config ssh_config"
TRAIN = "--data digits --scheme gsp --step-ms 100 --slowdown 1,1,4,1 --snapshot-every 5 --epochs 0 --seconds 600"
WATCHED_S = 30
"""Of a live run before its picture is taken: what has been drawn by then is what a user sees all the time."""


def chromium() -> str | None:
    """Debian's, or whatever goes by that name."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextlib.contextmanager
def served(run: Path) -> Iterator[str]:
    """The address of the page of a run."""
    process = subprocess.Popen([sys.executable, "-m", "paceline", "watch", str(run)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http\S+", process.stdout.readline())
        assert found, "paceline watch has not said where the page is"
        yield found[0]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def picture(
    browser: Any, address: str, path: Path, width: int, height: int, *, dark: bool = False, status: str = "over"
) -> None:
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", device_scale_factor=1.5
    )
    page.goto(address)
    page.locator("#status", has_text=status).wait_for(timeout=SETTLED_MS)
    page.locator("#foretold-bars .bar").first.wait_for(timeout=SETTLED_MS)
    page.wait_for_timeout(1500)  # what was asked for last is drawn
    page.screenshot(path=path, full_page=True)
    page.close()
    print(path)


def pictures_of_a_lab(browser: Any, folder: Path) -> None:
    """Of a run while it goes on, before and after one of its hosts has died."""
    with tempfile.TemporaryDirectory() as place, contextlib.contextmanager(opened)(Path(place), 3) as lab:
        lab.slow("h2", 0.25)
        lab.throttle("h3", "50mbit")
        (lab.folder / "hosts").write_text(HOSTS)
        launched = Launched(lab, *LAUNCH.split(), "paceline", "train", *TRAIN.split(), "--out", "run")
        try:
            assert launched.says("accuracy", 150), launched.said
            time.sleep(WATCHED_S)
            with served(lab.folder / "run") as address:
                picture(browser, address, folder / "watch-lab.png", 1400, 900, status="live")
                picture(browser, address, folder / "watch-lab-phone.png", 390, 844, status="live")
                lab.die("h3")
                assert launched.says("was replaced", 60), launched.said
                time.sleep(WATCHED_S)
                picture(browser, address, folder / "watch-lab-dark.png", 1400, 900, dark=True, status="live")
        finally:
            launched.process.send_signal(signal.SIGINT)
            launched.ends(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES, help="where to (default: docs/images)")
    folder = parser.parse_args().folder
    from playwright.sync_api import sync_playwright

    if chromium() is None:
        print("there is no chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as runs, sync_playwright() as playwright:
        four, thousand = Path(runs) / "four", Path(runs) / "thousand"
        for words, run in ((FOUR, four), (THOUSAND, thousand)):
            if paceline([*words.split(), "--out", str(run)]):
                return 1
        # A page of this machine for this machine: the sandbox, which root cannot have, guards nothing here.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        with served(four) as address:
            picture(browser, address, folder / "watch-light.png", 1400, 900)
            picture(browser, address, folder / "watch-dark.png", 1400, 900, dark=True)
            picture(browser, address, folder / "watch-phone.png", 390, 844)
        with served(thousand) as address:
            picture(browser, address, folder / "watch-1000.png", 1400, 900)
        if missing():
            print(f"no pictures of a lab: {missing()}", file=sys.stderr)
        else:
            pictures_of_a_lab(browser, folder)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
