"""Serves the page over HTTP: to whoever has the token, from this machine, read-only unless there are controls.

    GET /?token=...     takes the token once, leaves a cookie, and goes on to /
    GET /               the page
    GET /about          what the run is
    GET /state          what is known of it now; see `page_data.PageQuery`
    GET /watch.css ...  what the page is made of
    GET /log            the last lines of a log; ?name=... &lines=...
    GET /runs           the runs beside it
    GET /curves         the curves of some of them; ?runs=NAME&runs=NAME
    POST /control       what a person asks of the run, with `paceline watch --control`; see `control_requests.py`
    GET /metrics        what is known of it now, for Prometheus; takes the token as a bearer's too, or from its address

A request is refused unless its Host is this machine's own name (a page elsewhere may make a name of its own lead
here) and it brings the token. One that changes something must also come from this very page (Origin), as JSON, which no
form of another page can send. The token is compared in constant time and written to no log. With `metrics_open`,
every program on this machine may read /metrics, which has numbers and nothing else.
"""

from __future__ import annotations

import functools
import json
import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.observe.export import prometheus
from paceline.observe.watch.page_data import ROWS_MAX, PageQuery
from paceline.observe.watch.panels.log_tail import log_tail
from paceline.observe.watch.panels.run_list import COMPARED_MAX, RunList
from paceline.observe.watch.reader import Reader
from paceline.observe.watch.serving.control_requests import BODY_BYTES_MAX, ControlRequests, Give

PAGE = Path(__file__).parent.parent / "page"
"""The folder with the files of the page."""
SCRIPTS = ("watch.js", "charts.js", "panels.js", "resources.js", "runs.js", "controls.js")
FILES = {"/": "index.html"} | {f"/{name}": name for name in (*SCRIPTS, "watch.css", "icon.svg")}
"""By path, the file of the folder `page` that is served."""
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names by which a browser on this machine may call the page."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
COOKIE = "paceline-watch"
"""The cookie that keeps the token once the page was opened with it."""
LINES_SHOWN = 40
"""Lines of a log that the page shows."""
METRICS, CONTROL = "/metrics", "/control"
READ_ONLY = "This page is for reading; `paceline watch RUN --control` has controls.\n"
REFUSED_METRICS = (
    "/metrics needs the token that paceline has printed, as `Authorization: Bearer ...` or as ?token=...; "
    "`paceline watch --metrics-open` asks for none.\n"
)
REFUSED = "This page is for whoever started it: open the address that paceline has printed, with its token.\n"


def make_app(
    reader: Reader,
    about: Callable[[], dict[str, Any]],
    token: str,
    port: int,
    *,
    metrics_open: bool = False,
    give: Give | None = None,
) -> ASGIApp:
    """Returns the application. `about` is called whenever a page is loaded. `give` gives an order to the run; without
    it the page can only be read.

    Cookies are shared by all ports of a host, so the cookie's name has the port in it.
    """
    beside = RunList()

    def state(request: Request) -> Response:
        """Answers with what the page shows now, as JSON; the query says which part of the workers."""
        return _json(reader.picture(_query(request.query_params.get)))

    def told(_: Request) -> Response:
        """Answers with what does not change while the run goes on."""
        return _json(about() | {"control": give is not None})

    def log(request: Request) -> Response:
        """Answers with the last lines of a log of the run."""
        lines = _number(request.query_params.get, "lines", LINES_SHOWN)
        return _json(log_tail(reader.run, request.query_params.get("name") or "", lines))

    def runs(_: Request) -> Response:
        """Answers with the runs in the folder of this one."""
        return _json({"runs": beside.rows(reader.run)})

    def curves(request: Request) -> Response:
        """Answers with the curves of the runs that are named."""
        return _json(beside.curves(reader.run, request.query_params.getlist("runs")[:COMPARED_MAX]))

    def page(request: Request) -> Response:
        """Answers with a file of the page."""
        return FileResponse(PAGE / FILES[request.url.path])

    def metrics(_: Request) -> Response:
        """Answers with the metrics for Prometheus."""
        return Response(reader.metrics(about().get("scheme", "")), headers={"Content-Type": prometheus.CONTENT_TYPE})

    requests = ControlRequests(give) if give is not None else None
    routes = [Route("/state", state), Route("/about", told), Route(METRICS, metrics)]
    routes += [Route("/log", log), Route("/runs", runs), Route("/curves", curves)]
    pages = [Route(path, page) for path in FILES]
    if requests is not None:
        routes.append(_control_route(requests))
    app = Starlette(routes=[*routes, *pages])
    return Guard(app, token, f"{COOKIE}-{port}", (METRICS,) if metrics_open else (), controls=requests is not None)


def _control_route(requests: ControlRequests) -> Route:
    """Returns what answers a person who asks something of the run."""

    async def control(request: Request) -> Response:
        """Answers one request."""
        body = await _body(request)
        if body is None:
            return _json({"error": "a request is short"}, 413)
        status, answer = await run_in_threadpool(requests.take, body)
        return _json(answer, status)

    return Route(CONTROL, control, methods=["POST"])


class Guard:
    """Refuses requests that may not pass, and adds headers to every answer that say what a browser may do with it."""

    def __init__(
        self, app: ASGIApp, token: str, cookie: str, is_open: tuple[str, ...], *, controls: bool = False
    ) -> None:
        """`is_open`: paths that need no token. `controls`: requests that change something may pass."""
        self._app, self._token, self._cookie, self._open = app, token.encode(), cookie, is_open
        self._controls = controls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"no {scope['type']} here")
        answer = self._answer(Request(scope)) or self._app

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        await answer(scope, receive, with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Returns the refusal of a request; None where it may pass."""
        if request.headers.get("host", "").rpartition(":")[0] not in HOSTS:
            return PlainTextResponse("This page is at 127.0.0.1.\n", 421)
        if request.method not in ("GET", "HEAD"):
            return self._refusal_of_change(request)
        if request.url.path in self._open:
            return None
        if request.url.path == METRICS:
            return None if self._is_scraper(request) else PlainTextResponse(REFUSED_METRICS, 403)
        if self._is_token(request.cookies.get(self._cookie, "")):
            return RedirectResponse("/", 303) if "token" in request.query_params else None
        if request.url.path == "/" and self._is_token(request.query_params.get("token", "")):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="lax", path="/")
            return answer
        return PlainTextResponse(REFUSED, 403)

    def _refusal_of_change(self, request: Request) -> Response | None:
        """Returns the refusal of a request that would change something; None where it may pass.

        It needs the cookie, and a browser that says the request comes from this page: no other page can make it send
        JSON here, nor another Origin.
        """
        if not self._controls:
            return PlainTextResponse(READ_ONLY, 405)
        if request.method != "POST" or request.url.path != CONTROL:
            return PlainTextResponse("This page is for reading.\n", 405)
        own = f"http://{request.headers.get('host', '')}"
        if request.headers.get("origin") != own or request.headers.get("content-type") != "application/json":
            return PlainTextResponse("Controls are used on the page itself.\n", 403)
        return None if self._is_token(request.cookies.get(self._cookie, "")) else PlainTextResponse(REFUSED, 403)

    def _is_scraper(self, request: Request) -> bool:
        """Returns True if a request for /metrics brings the token in any of the accepted ways."""
        how, _, said = request.headers.get("authorization", "").partition(" ")
        brought = (
            said.strip() if how.lower() == "bearer" else "",
            request.query_params.get("token", ""),
            request.cookies.get(self._cookie, ""),
        )
        return any(map(self._is_token, brought))

    def _is_token(self, text: str) -> bool:
        """Compares in constant time, so that the time of an answer does not reveal how much of a guess was right."""
        return secrets.compare_digest(text.encode(), self._token)


def _number(get: Callable[[str], str | None], name: str, default: int) -> int:
    """Returns a number of the query, or `default` for a text that is none."""
    text = get(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _query(get: Callable[[str], str | None]) -> PageQuery:
    """Returns what the page asks for; what is no number, or too large, is as by default."""
    number = functools.partial(_number, get)
    return PageQuery(
        sort=get("sort") or "slow",
        first=number("first", 0),
        count=min(number("count", ROWS_MAX), ROWS_MAX),
        curve=number("curve", -1),
        events=number("events", -1),
        worker=number("worker", -1),
    )


async def _body(request: Request) -> bytes | None:
    """Returns the body of a request; None for one that is longer than requests are."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            return None
    return body


def _json(document: dict[str, Any], status: int = 200) -> Response:
    """Returns JSON in which NaN and infinity, which JSON does not have, are null: a run that diverges has them
    anywhere."""
    try:
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), separators=(",", ":"))
    return Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    """Returns `value` with null in place of NaN and infinities, which JSON does not have."""
    match value:
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
        case float() if not math.isfinite(value):
            return None
    return value
