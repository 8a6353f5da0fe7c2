"""Data that lie elsewhere: a web server, a WebHDFS stand-in, an S3 stand-in, and what fsspec has in this process."""

from __future__ import annotations

import contextlib
import functools
import gzip
import http.server
import json
import os
import select
import struct
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.config import build
from paceline.core.errors import ConfigError
from paceline.engine.data import mnist
from paceline.engine.data.remote import check_no_credentials, mirrored

fsspec = pytest.importorskip("fsspec")
NAMES = ("a", "b")


class Web(http.server.SimpleHTTPRequestHandler):
    """A folder on the web; `asked` are the paths that were read."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


class WebHdfs(Web):
    """A stand-in for WebHDFS: the two answers that reading a file takes, from a folder. No Hadoop is in it."""

    def do_GET(self) -> None:
        address = urllib.parse.urlsplit(self.path)
        file = Path(self.directory) / address.path.removeprefix("/webhdfs/v1/")
        operation = urllib.parse.parse_qs(address.query)["op"][0]
        self.asked.append(operation)
        if not file.is_file():
            told = {"exception": "FileNotFoundException", "message": f"File does not exist: {address.path}"}
            self._answer(404, json.dumps({"RemoteException": told}).encode())
        elif operation == "GETFILESTATUS":
            state = {"length": file.stat().st_size, "type": "FILE", "modificationTime": file.stat().st_mtime_ns}
            self._answer(200, json.dumps({"FileStatus": state}).encode())
        else:
            self._answer(200, file.read_bytes())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def served(kind: type[Web], folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Port, and what has been asked for."""
    handler = type("Handler", (kind,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, handler.asked  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = tmp_path / "there"
    there.mkdir()
    (there / "a").write_bytes(b"first")
    (there / "b.gz").write_bytes(gzip.compress(b"second"))
    return there


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".json"}


def test_a_file_is_fetched_once_and_again_when_it_changes_or_the_copy_is_damaged(folder: Path, tmp_path: Path) -> None:
    address, cache = f"file://{folder}", tmp_path / "cache"
    copy = mirrored(address, NAMES, cache)
    assert contents(copy) == contents(folder)
    made = (copy / "a").stat().st_ino
    assert mirrored(address, NAMES, cache) == copy
    assert (copy / "a").stat().st_ino == made
    (copy / "a").write_bytes(b"FIRST")
    (folder / "b.gz").write_bytes(b"other")
    assert contents(mirrored(address, NAMES, cache)) == {"a": b"first", "b.gz": b"other"}


def test_of_a_store_in_this_process_too(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe("/bucket/a", b"first")
    assert contents(mirrored("memory://bucket", ["a"], tmp_path)) == {"a": b"first"}


def test_a_web_server_is_read_once(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install 'paceline[remote]'")
    with served(Web, folder) as (port, asked):
        for _ in range(2):
            assert contents(mirrored(f"http://127.0.0.1:{port}", NAMES, tmp_path / "cache")) == contents(folder)
        assert asked.count("/a") == 1
        (folder / "a").write_bytes(b"longer than before")
        assert contents(mirrored(f"http://127.0.0.1:{port}", NAMES, tmp_path / "cache")) == contents(folder)


def test_so_is_webhdfs(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("requests", reason="requests is not installed: pip install 'paceline[remote]'")
    with served(WebHdfs, folder) as (port, asked):
        for _ in range(2):
            copy = mirrored(f"webhdfs://127.0.0.1:{port}/", NAMES, tmp_path / "cache")
            assert contents(copy) == contents(folder)
        assert asked.count("OPEN") == 2


def test_so_is_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is moto's stand-in for S3."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[server]'")
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'paceline[remote]'")
    for name, value in {"ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        files = fsspec.filesystem("s3", endpoint_url=f"http://{host}:{port}", skip_instance_cache=True)
        files.mkdir("bucket")
        files.pipe("bucket/digits/a", b"first")
        for _ in range(2):
            assert contents(mirrored("s3://bucket/digits", ["a"], tmp_path)) == {"a": b"first"}
        files.pipe("bucket/digits/a", b"FIRST")
        assert contents(mirrored("s3://bucket/digits", ["a"], tmp_path)) == {"a": b"FIRST"}
    finally:
        server.stop()


def test_what_cannot_be_had_is_told_in_one_line_with_the_way_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"^--data-dir file://\S+ holds neither c nor c.gz$"):
        mirrored(f"file://{folder}", ["a", "c"], tmp_path)
    with pytest.raises(ConfigError, match=r"^--data-dir nosuch://x: Protocol not known: nosuch; such as s3://.*$"):
        mirrored("nosuch://x", ["a"], tmp_path)
    with pytest.raises(ConfigError, match=r"cannot write to .*; give --data-dir a folder$"):
        mirrored("memory://bucket", ["a"], folder / "a")
    fsspec.filesystem("memory").pipe("/bucket/long", bytes((64 << 20) + 1))
    with pytest.raises(ConfigError, match=r"long is longer than 67108864 bytes$"):
        mirrored("memory://bucket", ["long"], tmp_path)
    assert not list(tmp_path.glob("remote/*/*.part"))
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ConfigError, match=r"^--data-dir memory://x: .*; pip install 'paceline\[remote\]' has s3"):
        mirrored("memory://x", ["a"], tmp_path)


def test_who_fetches_ends_with_whom_it_fetches_for(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    os.mkfifo(tmp_path / "there" / "a")  # a store that never answers
    code = "import sys; from paceline.engine.data.remote import *; mirrored(sys.argv[1], ['a'], Path(sys.argv[2]))"
    caller = subprocess.Popen([sys.executable, "-c", code, f"file://{tmp_path}/there", str(tmp_path / "cache")])
    try:
        with (tmp_path / "there" / "a").open("wb") as store:  # opens when it is read
            caller.kill()
            hung_up = select.poll()
            hung_up.register(store, 0)
            assert hung_up.poll(30_000)
    finally:
        caller.kill()
        caller.wait()


def test_a_data_set_is_loaded_from_an_address(tmp_path: Path) -> None:
    there = tmp_path / "mnist"
    there.mkdir()
    for name, count in (("train", 3), ("t10k", 2)):
        pixels = struct.pack(">IIII", 0x803, count, 28, 28) + bytes(count * 28 * 28)
        (there / f"{name}-images-idx3-ubyte").write_bytes(pixels)
        (there / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(count))
    splits = mnist.load("mnist", f"file://{there}", tmp_path / "cache")
    assert (len(splits.train.x), len(splits.test.x)) == (3, 2)
    assert build({"data": {"name": "mnist", "directory": f"file://{there}"}}).data.directory.startswith("file://")


@pytest.mark.parametrize(
    "address",
    [
        "s3://AKIA:hush@bucket/mnist",
        "https://me:hush@host/mnist",
        "https://host/mnist?X-Amz-Signature=hush",
        "https://account.blob/mnist?sv=1&sig=hush",
        "webhdfs://host/mnist?delegation=hush",
        "https://host/mnist?access_token=hush",
        "https://hush@host/mnist",
        "https://host/mnist?key=hush",
        "https://host/mnist?v=1;auth=hush",
        "https://host/mnist?to%6Ben=hush",
        "https://host/mnist#token=hush",
        "simplecache::https://me:hush@host/mnist",
        "filecache::s3://AKIA:hush@bucket/mnist",
        "zip://a::https://host/mnist.zip?sas=hush",
    ],
)
def test_credentials_in_an_address_are_refused_and_never_quoted(address: str) -> None:
    with pytest.raises(ConfigError, match="put them where its client looks") as refused:
        build({"data": {"name": "mnist", "directory": address}})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/mnist",
        "webhdfs://me@host:9870/data?kerberos=false",
        "https://host/a?v=3",
        "simplecache::s3://bucket/a?keyboard=1",
    ],
)
def test_a_user_or_a_version_in_an_address_is_no_secret(address: str) -> None:
    check_no_credentials(address)
