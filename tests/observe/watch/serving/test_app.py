"""Who may look at the page, and what a browser is told about it."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from starlette.types import ASGIApp

from paceline.core.trace import Applied, Decided, Ended, Evaluated, Gated, MemberChange, Record, Span
from paceline.observe.trace.trace_file import TraceWriter
from paceline.observe.watch.reader import Reader
from paceline.observe.watch.serving.app import FILES, HEADERS, PAGE, make_app

TOKEN = "a-token"
HERE = "http://127.0.0.1:8123"


class Browser:
    """One that keeps its cookies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._cookies = app, httpx.Cookies()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def request(self, verb: str, path: str, **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=HERE, cookies=self._cookies) as client:
                answer = await client.request(verb, path, **options)
                self._cookies.update(client.cookies)
                return answer

        return asyncio.run(asked())


@pytest.fixture
def client(tmp_path: Path) -> Browser:
    records: list[Record] = [Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=32)]
    with TraceWriter(tmp_path / "trace.jsonl") as writer:
        for record in [*records, Evaluated(at=0.2, accuracy=0.5, loss=1.5, samples=32, seconds=0.0)]:
            writer.append(record)
    reader = Reader(tmp_path)
    assert reader.read()
    app = make_app(reader, lambda: {"scheme": "bsp", "run": "runs/a"}, TOKEN, 8123)
    return Browser(app)


def test_who_has_no_token_sees_nothing(client: Browser) -> None:
    for path in [*FILES, "/state", "/about", "/log", "/runs", "/curves", "/nowhere"]:
        assert client.get(path).status_code == 403
        assert client.get(path, params={"token": "another"}).status_code == 403
    assert client.get("/state", params={"token": TOKEN}).status_code == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(client: Browser) -> None:
    answer = client.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert [client.get(path).status_code for path in [*FILES, "/state", "/about"]] == [200] * (len(FILES) + 2)
    assert TOKEN not in client.get("/").text + client.get("/state").text + client.get("/about").text


def test_prometheus_brings_the_token_in_a_header_or_in_the_address_and_gets_the_numbers_of_the_run(
    client: Browser,
) -> None:
    for refused in ({}, {"params": {"token": "b"}}, {"headers": {"authorization": f"Basic {TOKEN}"}}):
        assert client.get("/metrics", **refused).status_code == 403
    for told in ({"params": {"token": TOKEN}}, {"headers": {"authorization": f"Bearer {TOKEN}"}}):
        answer = client.get("/metrics", **told)
        assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
        assert "set-cookie" not in answer.headers
        assert re.search(r'paceline_samples_total\{rank="0",run=".*",scheme="bsp"\} 32\.0\n', answer.text)
    # The token of a scraper, in a header, opens nothing else.
    assert client.get("/state", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 403


def test_open_metrics_ask_for_no_token_and_the_rest_still_does(tmp_path: Path) -> None:
    client = Browser(make_app(Reader(tmp_path), dict, TOKEN, 8123, metrics_open=True))
    assert client.get("/metrics").status_code == 200
    assert client.get("/metrics", headers={"host": "evil.example:8123"}).status_code == 421
    assert {client.get(path).status_code for path in [*FILES, "/state", "/about"]} == {403}


def test_metrics_begin_anew_with_another_run_in_the_same_folder(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for samples in (32, 8):
        (tmp_path / "trace.jsonl").unlink(missing_ok=True)
        with TraceWriter(tmp_path / "trace.jsonl") as writer:
            writer.append(Span(at=0.1, rank=0, activity="computing", seconds=0.1, steps=1, samples=samples))
            writer.append(Evaluated(at=math.nan, accuracy=0.5, loss=0.5, samples=1, seconds=0.0))
        assert reader.read()
        assert re.search(rf'samples_total\{{rank="0",.*\}} {samples}\.0\n', reader.metrics("bsp"))
        assert "NaN" not in reader.metrics("bsp")


def test_logs_and_other_runs_are_answered_by_name_and_never_by_path(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with TraceWriter(tmp_path / "runs" / name / "trace.jsonl") as writer:
            writer.append(Evaluated(at=0.2, accuracy=0.5, loss=1.5, samples=32, seconds=0.0))
    (tmp_path / "runs" / "a" / "logs").mkdir()
    (tmp_path / "runs" / "a" / "logs" / "worker-0.log").write_text("hello\n")
    client = Browser(make_app(Reader(tmp_path / "runs" / "a"), dict, TOKEN, 8123))
    client.get("/", params={"token": TOKEN})
    assert client.get("/log", params={"name": "../b/trace", "lines": "x"}).json()["lines"] == ["hello"]
    assert {row["name"] for row in client.get("/runs").json()["runs"]} == {"a", "b"}
    curves = client.get("/curves", params={"runs": ["b", "../runs/b", "/etc"]}).json()
    assert {name: curve["points"] for name, curve in curves.items()} == {"b": [[0.2, 0.5, 1.5, 32]]}


def test_a_name_from_elsewhere_that_leads_here_is_refused(client: Browser) -> None:
    client.get("/", params={"token": TOKEN})
    for host in ("evil.example:8123", "evil.example", "127.0.0.1.evil.example:8123", ""):
        assert client.get("/state", headers={"host": host}).status_code == 421
    for host in ("127.0.0.1:8123", "localhost:9000"):
        assert client.get("/state", headers={"host": host}).status_code != 421


def test_nothing_can_be_changed(client: Browser) -> None:
    client.get("/", params={"token": TOKEN})
    assert {client.request(verb, "/state").status_code for verb in ("POST", "PUT", "DELETE", "PATCH")} == {405}


def test_every_answer_tells_the_browser_to_stay_on_this_machine(client: Browser) -> None:
    refused, there, missing = client.get("/"), client.get("/", params={"token": TOKEN}), client.get("/nowhere")
    for answer in (refused, there, missing, client.get("/state")):
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_the_page_has_no_script_style_or_address_in_its_markup_and_never_sets_markup() -> None:
    markup = (PAGE / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=\"/)|<style|\sstyle=|\son\w+=|https?:", markup) == []
    scripts = "".join((PAGE / name).read_text() for name in ("watch.js", "charts.js"))
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", scripts) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", scripts) == []


def test_what_the_page_has_already_is_not_sent_again(client: Browser) -> None:
    client.get("/", params={"token": TOKEN})
    first = client.get("/state").json()
    assert first["curve"] == [[0.2, 0.5, 1.5, 32]]
    assert first["rows"][0]["step_ms"] == 100.0
    again = client.get("/state", params={"curve": first["curve_count"], "events": first["event_count"]}).json()
    assert not {"curve", "events"} & set(again)


def test_a_question_that_makes_no_sense_is_answered_as_the_plain_one(client: Browser) -> None:
    client.get("/", params={"token": TOKEN})
    odd = {"sort": "beauty", "first": "-3", "count": "9" * 30, "curve": "²", "events": "x"}
    assert client.get("/state", params=odd).json() == client.get("/state").json()


def test_the_loss_of_a_run_that_diverges_is_left_out_of_the_state(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace.jsonl") as writer:
        writer.append(Evaluated(at=0.2, accuracy=0.5, loss=math.nan, samples=32, seconds=0.0))
    reader = Reader(tmp_path)
    assert reader.read()
    client = Browser(make_app(reader, dict, TOKEN, 8123))
    client.get("/", params={"token": TOKEN})
    assert client.get("/state").json()["curve"] == [[0.2, 0.5, None, 32]]


EVERY_KIND: list[Record] = [
    Span(at=2.0, rank=0, activity="computing", seconds=0.1, steps=1, samples=4),
    Span(at=2.0, rank=0, activity="waiting", seconds=0.1, hidden=0.1),
    Applied(at=2.0, shard=0, ranks=(0,), version=1, staleness=0, weight=1.0, samples=4),
    Decided(at=2.0, party="server 0", rank=0, verdict="go", reason="x"),
    Gated(at=2.0, shard=0, rank=0, number=1, refused=True, reason="x"),
    Evaluated(at=2.0, accuracy=0.5, loss=1.5, samples=32, seconds=0.1),
    MemberChange(at=2.0, party="worker 0", event="left"),
    Ended(at=2.0, reason="steps"),
]


@pytest.mark.parametrize("record", EVERY_KIND, ids=lambda record: type(record).__name__)
def test_whatever_in_a_record_is_no_number_the_state_is_told(record: Record, tmp_path: Path) -> None:
    whole = [Span(at=0.1 * n, rank=0, activity="computing", seconds=0.1, steps=1, samples=4) for n in range(1, 9)]
    fields = [field.name for field in dataclasses.fields(record) if isinstance(getattr(record, field.name), float)]
    with TraceWriter(tmp_path / "trace.jsonl") as writer:
        for name, value in itertools.product(fields, (math.nan, math.inf, -math.inf)):
            broken: dict[str, Any] = {name: value}
            writer.append(dataclasses.replace(record, **broken))
        for span in whole:
            writer.append(span)
    reader = Reader(tmp_path)
    assert reader.read()
    client = Browser(make_app(reader, lambda: {"target": math.nan}, TOKEN, 8123))
    client.get("/", params={"token": TOKEN})
    state = json.loads(client.get("/state").text, parse_constant=pytest.fail)
    assert state["rows"][0]["step_ms"] == 100.0
    assert client.get("/about").json() == {"target": None, "control": False}


JSON = {"content-type": "application/json", "origin": HERE}


def controlled(tmp_path: Path) -> tuple[Browser, list[tuple[str, int, float]]]:
    """A browser at a page with controls, and the orders that were given."""
    given: list[tuple[str, int, float]] = []
    (tmp_path / "trace.jsonl").write_text("")

    def give(kind: str, rank: int, factor: float) -> None:
        given.append((kind, rank, factor))

    return Browser(make_app(Reader(tmp_path), dict, TOKEN, 8123, give=give)), given


def test_without_controls_nothing_can_be_changed(client: Browser) -> None:
    client.get("/", params={"token": TOKEN})
    assert client.get("/about").json()["control"] is False
    answer = client.request("POST", "/control", headers=JSON, content=b'{"kind":"grow"}')
    assert answer.status_code == 405
    assert "--control" in answer.text


def test_with_controls_an_order_is_asked_twice(tmp_path: Path) -> None:
    browser, given = controlled(tmp_path)
    browser.get("/", params={"token": TOKEN})
    assert browser.get("/about").json()["control"] is True
    ask = {"kind": "drain", "rank": 2}
    asked = browser.request("POST", "/control", headers=JSON, content=json.dumps(ask)).json()
    assert given == []
    answer = browser.request("POST", "/control", headers=JSON, content=json.dumps({**ask, "confirm": asked["confirm"]}))
    assert answer.json() == {"given": True}
    assert given == [("drain", 2, 1.0)]


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json"},
        {"content-type": "application/json", "origin": "http://127.0.0.1:9"},
        {"content-type": "application/json", "origin": "null"},
        {"content-type": "text/plain", "origin": HERE},
        {"content-type": "application/json", "origin": HERE, "host": "evil.example:8123"},
    ],
)
def test_no_other_page_can_use_the_controls(tmp_path: Path, headers: dict[str, str]) -> None:
    browser, _ = controlled(tmp_path)
    browser.get("/", params={"token": TOKEN})
    answer = browser.request("POST", "/control", headers=headers, content=b'{"kind":"grow"}')
    assert answer.status_code in (403, 421)


def test_controls_need_the_token_and_other_methods_do_nothing(tmp_path: Path) -> None:
    browser, _ = controlled(tmp_path)
    assert browser.request("POST", "/control", headers=JSON, content=b'{"kind":"grow"}').status_code == 403
    browser.get("/", params={"token": TOKEN})
    for verb in ("PUT", "DELETE", "PATCH"):
        assert browser.request(verb, "/control", headers=JSON).status_code == 405
    assert browser.request("POST", "/state", headers=JSON).status_code == 405
    assert browser.request("POST", "/control", headers=JSON, content=b" " * 2000).status_code == 413
