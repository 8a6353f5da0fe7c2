"""The page in a real browser: a live run, one over, a thousand workers. Needs Debian's chromium: `make page-test`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.core.trace import Ended, Evaluated, MemberChange, Record, Span
from paceline.observe.trace.trace_file import TraceWriter
from scripts.screenshots import chromium, served

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see make page-test")
pytestmark = [
    pytest.mark.skipif(chromium() is None, reason="there is no chromium here: see make page-test"),
    pytest.mark.timeout(300),
]
PATIENCE_MS = 60_000
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()


class Visit:
    """A page that remembers what went wrong on it and where it asked."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.page = browser.new_page(**context)
        self.page.set_default_timeout(PATIENCE_MS)
        self.troubles: list[str] = []
        self.requests: set[str] = set()
        self.page.on("console", lambda said: self.troubles.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", lambda request: self.requests.add(request.url.split("/")[2]))
        self.page.goto(address)
        self.at = address.split("/")[2]

    def shows(self, selector: str, text: str | re.Pattern[str]) -> None:
        playwright.expect(self.page.locator(selector)).to_contain_text(text, timeout=PATIENCE_MS)

    def close(self) -> None:
        assert self.troubles == []
        assert self.requests == {self.at}
        self.page.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three workers of which one is slow, and has a bad name."""
    run = tmp_path_factory.mktemp("small")
    with TraceWriter(run / "trace.jsonl") as writer:
        records: list[Record] = [
            MemberChange(at=0.0, party=f"worker {rank}", event="joined", device=HOSTILE, host=f"h{rank}")
            for rank in range(3)
        ]
        for n in range(100):
            at = 0.4 * (n + 1)
            for rank, busy in enumerate((0.1, 0.1, 0.4)):
                begin = at - 0.4 + busy
                records.append(
                    Span(at=begin, rank=rank, activity="computing", seconds=busy, steps=1, samples=8, exchanges=1)
                )
                records.append(Span(at=at, rank=rank, activity="waiting", seconds=0.4 - busy))
        lost = MemberChange(at=39.0, party="server 1", event="lost", reason=HOSTILE)
        replaced = MemberChange(at=39.2, party="server 1", event="replaced", reason="from a copy")
        for record in [
            *records,
            lost,
            replaced,
            Evaluated(at=39.5, accuracy=0.75, loss=0.5, samples=2400, seconds=0.0),
        ]:
            writer.append(record)
        writer.append(Ended(at=40.0, reason="steps"))
    return run


def test_the_page_of_a_live_run_names_the_slow_worker_while_it_goes_on(browser: Any, tmp_path: Path) -> None:
    words = "train --data digits --scheme bsp --workers 2 --slowdown 1,5 --step-ms 20 --seconds 40 --epochs 0 --watch"
    command = [sys.executable, "-m", "paceline", *words.split(), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"http\S+", process.stderr.readline())
        assert found
        visit = Visit(browser, found[0])
        visit.shows("#status", "live")
        visit.shows("#sentence", re.compile(r"Worker 1 \(cpu on .*\) holds the others up"))
        visit.shows("#scheme", "bsp")
        visit.shows("#box", "g_i <- grad f_i(w)")
        visit.shows("#accuracy", re.compile(r"0\.\d{3}"))
        visit.shows("#goodput", re.compile(r"^\d+%$"))
        visit.shows("#left", re.compile(r"\d s$"))
        visit.shows("#epoch", re.compile(r"\d\.\d"))
        visit.shows("#learning-rate", "0.15")
        visit.shows("#settings", "--slowdown")
        visit.shows("#stop-command", f"paceline kill {tmp_path / 'run'}")
        visit.shows("#alerts", re.compile(r"Slow worker.*Since \d"))
        visit.shows("#alerts-said", "Slow worker: Worker 1")
        assert visit.page.locator("#progress").get_attribute("aria-valuenow") != "0"
        visit.shows("#rows", re.compile(r"0cpu · .{1,40}ms[5-9]\d%"))  # what it is at now changes ten times a second
        visit.close()
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def test_controls_are_asked_twice_and_the_trace_says_what_became_of_them(browser: Any, tmp_path: Path) -> None:
    words = (
        "train --data digits --scheme asp --workers 3 --slowdown 1,1,3 --step-ms 20 --seconds 60 --epochs 0 --watch "
        "--control"
    )
    command = [sys.executable, "-m", "paceline", *words.split(), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"http\S+", process.stderr.readline())
        assert found
        visit = Visit(browser, found[0])
        page = visit.page
        visit.shows("#may", "with controls")
        visit.shows("#rows", re.compile(r"\d MB · [\d.]+ cores"))
        visit.shows("#link-rows", re.compile(r"worker 0 . server 0[\d.]+ [kM]B/s"))
        playwright.expect(page.locator("#own-controls")).to_be_hidden()
        page.get_by_role("button", name="Change it").click()
        visit.shows("#ask-sentence", "Multiply the learning rate of every worker by 0.5.")
        page.get_by_role("button", name="No, leave it").click()
        page.get_by_role("button", name="Change it").click()
        page.get_by_role("button", name="Yes, do it").click()
        visit.shows("#events", "operator: learning-rate \u2013 times 0.5, 0.5 in all")
        visit.shows("#learning-rate", "0.075")
        page.get_by_role("link", name="2", exact=True).click()
        page.get_by_role("button", name="Drain this worker").click()
        visit.shows("#ask-sentence", "Drain worker 2")
        page.get_by_role("button", name="Yes, do it").click()
        visit.shows("#events", "worker 2: drained")
        assert page.locator("#events li", has_text="operator: learning-rate").count() == 1, "a No changes nothing"
        visit.close()
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def test_what_comes_from_the_run_is_text_and_never_markup(browser: Any, small: Path) -> None:
    with served(small) as address:
        visit = Visit(browser, address)
        visit.shows("#status", "over: steps")
        playwright.expect(visit.page.locator("#stop")).to_be_hidden()
        visit.shows("#sentence", f"Worker 2 ({HOSTILE} on h2) held the others up")
        visit.shows("#holdup-title", "The run is over")
        visit.shows("#events", HOSTILE)
        visit.shows("#rows", HOSTILE)
        assert visit.page.locator("img").count() == 0
        visit.close()


def test_a_failed_run_is_the_headline_in_red_with_its_cause(browser: Any, small: Path, tmp_path: Path) -> None:
    lines = (small / "trace.jsonl").read_text().splitlines()[:-1]
    cause = "worker 1 was lost: killed by signal 9"
    failed = json.dumps({"kind": "ended", "at": 40.0, "reason": f"failed: {cause}"})
    (tmp_path / "trace.jsonl").write_text("\n".join([*lines, failed]) + "\n")
    with served(tmp_path) as address:
        visit = Visit(browser, address)
        visit.shows("#status", "failed")
        visit.shows("#holdup-title", "The run has failed")
        playwright.expect(visit.page.locator("#sentence")).to_have_text(cause)
        visit.shows("#announce", cause)
        red = visit.page.evaluate("getComputedStyle(document.querySelector('#status')).backgroundColor")
        colour = visit.page.evaluate("getComputedStyle(document.querySelector('#sentence')).color")
        assert red == colour == "rgb(179, 57, 31)"
        visit.close()


def test_it_is_used_by_keyboard_and_told_to_who_does_not_see_it(browser: Any, small: Path) -> None:
    with served(small) as address:
        visit = Visit(browser, address)
        visit.shows("#announce", "Worker 2")
        page = visit.page
        playwright.expect(page.get_by_role("status").first).to_contain_text("held the others up")
        assert page.get_by_role("columnheader", name="step", exact=True).get_attribute("aria-sort") == "descending"
        page.get_by_role("button", name="rank").focus()
        page.keyboard.press("Enter")
        first = page.locator("#rows tr.worker").first
        playwright.expect(first.get_by_role("rowheader")).to_have_text("0")
        assert page.get_by_role("columnheader", name="rank").get_attribute("aria-sort") == "ascending"
        strip = first.get_by_role("img").get_attribute("aria-label")
        assert strip == "computing 25%, communicating 0%, waiting 75%"
        visit.close()


@pytest.mark.parametrize("look", [{"viewport": {"width": 360, "height": 740}}, {"color_scheme": "dark"}])
def test_it_fits_a_phone_and_follows_light_and_dark(browser: Any, small: Path, look: dict[str, Any]) -> None:
    with served(small) as address:
        visit = Visit(browser, address, **look)
        visit.shows("#sentence", "Worker 2")
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground))) < 150) == ("color_scheme" in look)
        visit.close()


def test_on_a_phone_every_table_stays_within_its_card(browser: Any, tmp_path: Path) -> None:
    words = "simulate --scheme gsp --timing-only --step-ms 1000 --seconds 20 --epochs 0 --workers 24 --servers 2"
    groups = ";".join(",".join(map(str, range(first, first + 12))) for first in (0, 12))
    assert main([*words.split(), "--gsp.groups", groups, "--out", str(tmp_path / "run")]) == 0
    with served(tmp_path / "run") as address:
        visit = Visit(browser, address, viewport={"width": 390, "height": 844})
        visit.shows("#status", "over")
        visit.shows("#group-rows", "0, 1, 2")
        beyond = """[...document.querySelectorAll("table")].filter((table) => {
          const card = table.closest(".card"), room = parseFloat(getComputedStyle(card).paddingRight);
          const edge = card.getBoundingClientRect().right - room + 1;
          return table.offsetWidth && table.getBoundingClientRect().right > edge;
        }).map((table) => table.closest(".card").id)"""
        assert visit.page.evaluate(beyond) == []
        visit.close()


def test_a_thousand_workers_have_bands_and_only_the_rows_in_sight(browser: Any, tmp_path: Path) -> None:
    words = "simulate --scheme bsp --cluster spot-1000 --timing-only --seconds 0.2 --epochs 0"
    assert main([*words.split(), "--out", str(tmp_path / "run")]) == 0
    with served(tmp_path / "run") as address:
        visit = Visit(browser, address)
        visit.shows("#count", "1,000")
        visit.shows("#status", "over")
        page = visit.page
        assert page.locator("#bands tr").count() == 10
        assert 10 < page.locator("#rows tr.worker").count() < 60
        assert page.locator("#table").get_attribute("aria-rowcount") == "1001"
        page.get_by_role("button", name="rank").click()
        playwright.expect(page.locator("#rows tr.worker").first.get_by_role("rowheader")).to_have_text("0")
        page.evaluate("document.querySelector('#scroll').scrollTop = 1e6")
        playwright.expect(page.locator("#rows tr.worker").last.get_by_role("rowheader")).to_have_text("999")
        visit.close()


def test_the_page_of_a_race_goes_over_to_the_next_run(browser: Any, small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "first")
    with served(tmp_path) as address:
        visit = Visit(browser, address)
        visit.shows("#run", "first")
        visit.shows("#events", "server 1: lost")
        words = "simulate --scheme asp --timing-only --seconds 1 --epochs 0"
        assert main([*words.split(), "--out", str(tmp_path / "second")]) == 0
        visit.shows("#run", "second")
        visit.shows("#scheme", "asp")
        visit.shows("#events", "Nothing yet")
        visit.close()


def test_a_worker_has_a_page_of_its_own_with_its_log_and_what_befell_it(browser: Any, small: Path) -> None:
    (small / "logs").mkdir()
    (small / "logs" / "worker-1.log").write_text("the last of all\n")
    (small / "logs" / "worker-2.log").write_text(f"one line\n{HOSTILE}\n")
    os.utime(small / "logs" / "worker-2.log", (1000, 1000))
    with served(small) as address:
        visit = Visit(browser, address)
        visit.shows("#log", "the last of all")
        visit.page.get_by_role("link", name="2", exact=True).click()
        visit.shows("#own-title", "Worker 2")
        visit.shows("#own-figures", "times the median4")
        visit.shows("#log", HOSTILE)
        assert visit.page.locator("#own-strip").get_attribute("aria-label") == (
            "computing 100%, communicating 0%, waiting 0%"
        )
        visit.page.get_by_role("link", name="close").click()
        playwright.expect(visit.page.locator("#own-page")).to_be_hidden()
        visit.close()


def test_runs_of_a_folder_are_compared_on_one_page(browser: Any, tmp_path: Path) -> None:
    for scheme in ("bsp", "esync"):
        words = f"simulate --scheme {scheme} --workers 3 --slowdown 1,1,4 --step-ms 20 --seconds 3 --epochs 0"
        assert main([*words.split(), "--out", str(tmp_path / scheme)]) == 0
    with served(tmp_path / "bsp") as address:
        visit = Visit(browser, address)
        visit.shows("#run-rows", "bsp (this page)")
        page = visit.page
        for scheme in ("bsp", "esync"):
            page.get_by_role("checkbox", name=f"compare {scheme}").check()
        playwright.expect(page.locator("#compared path.curve")).to_have_count(2)
        colours = page.locator("#compared path.curve").evaluate_all("(paths) => paths.map((path) => path.style.stroke)")
        assert len(set(colours)) == 2
        page.locator("#compared").focus()
        page.keyboard.press("ArrowRight")
        visit.shows("#compared .readout", re.compile(r"s: bsp \d.*, esync \d"))
        visit.close()


def test_the_target_of_a_run_is_drawn_at_the_axis_of_what_it_is_a_target_of(browser: Any, tmp_path: Path) -> None:
    words = "simulate --scheme bsp --workers 2 --step-ms 20 --seconds 3 --target-accuracy 0.99 --target-loss 0.01"
    assert main([*words.split(), "--out", str(tmp_path)]) == 0
    with served(tmp_path) as address:
        visit = Visit(browser, address)
        visit.shows("#status", "over")
        playwright.expect(visit.page.locator("#curve line.target")).to_have_count(2)
        visit.shows("#curve", "target 0.99")
        visit.shows("#curve", "target loss 0.01")
        of_accuracy, of_loss = visit.page.locator("#curve line.target").evaluate_all(
            "(lines) => lines.map((line) => Number(line.getAttribute('y1')))"
        )
        assert of_accuracy < of_loss, "a loss is near the bottom, an accuracy near the top"
        visit.close()


def test_charts_are_read_by_mouse_and_by_keyboard(browser: Any, small: Path) -> None:
    with served(small) as address:
        visit = Visit(browser, address)
        visit.shows("#status", "over")
        page = visit.page
        page.locator("#curve").focus()
        page.keyboard.press("ArrowRight")
        visit.shows("#curve .readout", "39.5 s: accuracy 0.75, loss 0.5")
        page.locator("#rates").focus()
        ends = "(texts) => texts.map((text) => text.textContent).filter((text) => text.endsWith(' s')).at(-1)"
        whole = page.locator("#rates text").evaluate_all(ends)
        page.keyboard.press("+")
        playwright.expect(page.locator("#rates")).not_to_contain_text(f"{whole}")
        page.keyboard.press("Escape")
        visit.shows("#rates", whole)
        box = page.locator("#rates").bounding_box()
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 90)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 90)
        page.mouse.up()
        playwright.expect(page.locator("#rates")).not_to_contain_text(f"{whole}")
        page.locator("#rates").dblclick()
        visit.shows("#rates", whole)
        page.locator("#rates").hover()
        visit.shows("#rates .readout", re.compile(r"^[\d.]+ s: \d+"))
        visit.close()


def test_workers_are_above_the_fold_of_a_laptop_and_a_wide_screen_is_used(browser: Any, small: Path) -> None:
    for width, height in ((1440, 900), (3840, 2160)):
        with served(small) as address:
            visit = Visit(browser, address, viewport={"width": width, "height": height})
            visit.shows("#sentence", "Worker 2")
            visit.page.locator("#foretold-bars .bar").first.wait_for(timeout=PATIENCE_MS)
            last = visit.page.locator("#rows tr.worker").last.bounding_box()
            assert last["y"] + last["height"] < height
            right = "(cards) => cards.map((card) => card.getBoundingClientRect().right)"
            cards = visit.page.locator(".card").evaluate_all(right)
            assert max(cards) > 0.9 * width
            visit.close()


def test_on_a_phone_no_figure_of_a_worker_is_dropped(browser: Any, small: Path) -> None:
    with served(small) as address:
        visit = Visit(browser, address, viewport={"width": 390, "height": 844})
        visit.shows("#sentence", "Worker 2")
        shown = "(cells) => cells.filter((cell) => cell.offsetWidth > 0).map((cell) => cell.dataset.label)"
        cells = visit.page.locator("#rows tr.worker").first.locator("> *")
        names = ("rank", "device", "step", "where", "waiting", "samples/s", "share", "steps/round", "stale", "memory")
        names = (*names, "now")
        found = cells.evaluate_all(shown)
        assert len(found) == len(names)
        assert all(label.startswith(name) for label, name in zip(found, names, strict=True))
        visit.close()
