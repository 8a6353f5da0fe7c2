"""Keeps checkpoints in Redis, so that a run can be resumed on another machine.

    paceline:RUN:checkpoints        the numbers of those there are, in order
    paceline:RUN:N:manifest         as in a folder, with sizes and checksums of all files
    paceline:RUN:N:seal             where there is a key: digests of all files, signed with the manifest
    paceline:RUN:N:pieces           the keys of all pieces
    paceline:RUN:N:FILE:K           piece K of a file; a string of Redis holds 512 MiB at most

Pieces come first and expire after a day. One transaction then makes them permanent, writes the manifest and enters the
number. A writer that is killed at any instant leaves the old checkpoint or the new one.

Whoever may write to the server may put any weights there. So a store beyond this machine needs a key
(PACELINE_CHECKPOINT_KEY), which the server never sees: a checkpoint that is not signed with it is not used. The seal is
an HMAC-SHA256 over the run, the number, the manifest and the SHA-256 of every file. It does not show whether newer
checkpoints have been deleted.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from paceline.checkpoint import strict_json
from paceline.checkpoint.base_store import CheckpointStore, Contents
from paceline.checkpoint.manifest import BYTES_MAX, Damaged, FileEntry, Manifest
from paceline.checkpoint.redis_url import KEY, NO_SECRETS, WAY, Address, StoreSecrets
from paceline.core.errors import ConfigError

PIECE_BYTES = 1 << 22
"""Bytes of a piece. A string of Redis may have 512 MiB; short pieces keep the server answering others."""
PIECES_MAX = 1 << 20
"""Pieces of a file."""
UNFINISHED_S = 24 * 3600
"""Seconds after which pieces expire that no manifest has made permanent."""
SEAL_BYTES_MAX = 1 << 22
"""Bytes of a seal. A longer one is refused before it is read."""
TIMEOUT_S = 5.0
"""The deadline of one command, which is not repeated: a server that hangs must not delay the end of a run."""
NUMBER = re.compile(rb"[0-9]{1,15}")
"""Members of the sorted set that are numbers of checkpoints; anything else there is passed over."""
T = TypeVar("T")


class StoreTimeoutError(ConfigError):
    """The server has not answered within TIMEOUT_S. Another request would wait as long again."""


class RedisStore(CheckpointStore):
    """Keeps the checkpoints of the run that `address` names."""

    def __init__(self, address: Address, secrets: StoreSecrets = NO_SECRETS, *, piece_bytes: int = PIECE_BYTES) -> None:
        """Connects to the server. Raises ConfigError where the library or the key is missing, or the server cannot be
        reached.
        """
        if not (secrets.key or address.is_here):
            raise ConfigError(
                f"{address} is on another machine, where others could put weights of their own: give a key, such as of "
                f"`openssl rand -hex 32`, in the environment as {KEY}, or its file's name as {KEY}_FILE"
            )
        self.address, self._piece_bytes, self._key_of_seals = address, piece_bytes, secrets.key.encode()
        self._digests: dict[int, dict[str, str]] = {}  # by checkpoint whose seal is right: SHA-256 of its files
        self._redis, self._error = connect(address, secrets.password)

    def __str__(self) -> str:
        return str(self.address)

    def numbers(self) -> list[int]:
        """Returns the numbers of those there are. Raises OSError when the server is gone."""
        found = self._carried_out(lambda: self._redis.zrange(self._key("checkpoints"), 0, -1))
        return sorted(int(number) for number in found if NUMBER.fullmatch(number))

    def name(self, number: int, file: str = "") -> str:
        return f"{self.address}, checkpoint {number}{f', {file}' if file else ''}"

    def save(self, number: int, contents: Contents, *, finite: bool, **facts: Any) -> Manifest:
        """Writes a checkpoint. Raises OSError when the server does not take it; then there is no such one."""
        keys: list[str] = []

        def act() -> Manifest:
            digests: dict[str, str] = {}
            entries = tuple(self._write(number, file, pieces, keys, digests) for file, pieces in contents.items())
            manifest = Manifest(files=entries, finite=finite, facts=facts)
            with self._redis.pipeline(transaction=True) as whole:
                for key in keys:
                    whole.persist(key)
                whole.sadd(self._key(number, "pieces"), *keys)
                whole.set(self._key(number, "manifest"), manifest.to_bytes())
                if self._key_of_seals:
                    seal = {"files": digests, "mac": self._mac(number, manifest.to_bytes(), digests)}
                    whole.set(self._key(number, "seal"), json.dumps(seal))
                whole.zadd(self._key("checkpoints"), {str(number): number})
                whole.execute()
            return manifest

        self.delete(number)
        return self._carried_out(act)

    def _write(
        self, number: int, file: str, chunks: Iterable[bytes], keys: list[str], digests: dict[str, str]
    ) -> FileEntry:
        """Writes one file in pieces that expire, and notes their keys and the file's digest."""
        size = checksum = count = 0
        digest = hashlib.sha256()
        for piece in _cut(chunks, self._piece_bytes):
            keys.append(self._key(number, file, count))
            self._redis.set(keys[-1], piece, ex=UNFINISHED_S)
            size, checksum, count = size + len(piece), zlib.crc32(piece, checksum), count + 1
            digest.update(piece)
        digests[file] = digest.hexdigest()
        self._redis.unlink(self._key(number, file, count))  # a longer file of an earlier try must not go on here
        return FileEntry(name=file, size=size, crc32=checksum)

    def delete(self, number: int) -> None:
        """Removes a checkpoint in one transaction. Raises OSError when the server is gone."""

        def act() -> None:
            pieces = self._key(number, "pieces")
            keys = self._redis.smembers(pieces)
            # The keys are read before the transaction: there is one writer, so none is added meanwhile.
            with self._redis.pipeline(transaction=True) as whole:  # a delete cut short would leave pieces for ever
                whole.zrem(self._key("checkpoints"), str(number))
                whole.delete(self._key(number, "manifest"), self._key(number, "seal"))
                whole.unlink(pieces, *keys)
                whole.execute()

        self._carried_out(act)

    def _manifest(self, number: int) -> bytes:
        """Returns the bytes of the manifest, after its signature was checked where a key is given.

        The length is asked for first: a value of any size could be there, and all of it would be received.
        """
        key = self._key(number, "manifest")
        if self._read(lambda: self._redis.strlen(key)) > BYTES_MAX:
            raise Damaged(f"{self.name(number, 'manifest')}: longer than {BYTES_MAX} bytes")
        found: bytes | None = self._read(lambda: self._redis.get(key))
        if found is None:
            raise Damaged(f"{self.name(number, 'manifest')} is missing")
        if self._key_of_seals:
            self._digests[number] = self._sealed(number, found)
        return found

    def _pieces(self, number: int, file: str) -> Iterator[bytes]:
        """Yields the pieces of a file until one is missing. Raises Damaged where it is not what was signed.

        A file that lacks pieces at its end is noticed by its size and checksum, in `CheckpointStore.read`.
        """
        digest = hashlib.sha256()
        for at in range(PIECES_MAX):
            key = self._key(number, file, at)
            piece: bytes | None = self._read(functools.partial(self._redis.get, key))
            if piece is None:
                break
            digest.update(piece)
            yield piece
        if self._key_of_seals and self._digests.get(number, {}).get(file) != digest.hexdigest():
            raise Damaged(f"{self.name(number, file)}: it is not what was signed")

    # ---- seals -------------------------------------------------------------------------------------------
    def _mac(self, number: int, manifest: bytes, digests: dict[str, str]) -> str:
        """Returns the HMAC-SHA256 over run, number, manifest and digests."""
        facts = [self.address.run, number, hashlib.sha256(manifest).hexdigest(), sorted(digests.items())]
        said = f"paceline checkpoint\n{json.dumps(facts)}".encode()
        return hmac.new(self._key_of_seals, said, hashlib.sha256).hexdigest()

    def _sealed(self, number: int, manifest: bytes) -> dict[str, str]:
        """Returns the SHA-256 of each file, as signed.

        Raises Damaged where the signature is missing or of another key.
        """
        key, name = self._key(number, "seal"), self.name(number, "manifest")
        if self._read(lambda: self._redis.strlen(key)) > SEAL_BYTES_MAX:
            raise Damaged(f"{name}: its seal is longer than {SEAL_BYTES_MAX} bytes")
        found: bytes | None = self._read(lambda: self._redis.get(key))
        if found is None:
            raise Damaged(f"{name} is not signed, and {KEY} is given")
        try:
            seal = strict_json.decoded(found)
            digests, mac = dict(seal["files"]), str(seal["mac"])
            right = self._mac(number, manifest, digests)
        except (ValueError, TypeError, KeyError):
            raise Damaged(f"{name}: its seal is damaged") from None
        if not hmac.compare_digest(right.encode(), mac.encode()):
            raise Damaged(f"{name}: signed with another key than {KEY}, or changed since")
        return digests

    def _read(self, act: Callable[[], T]) -> T:
        """Carries out `act`, which reads: a server that is gone makes the checkpoint Damaged."""
        try:
            return self._carried_out(act)
        except OSError as error:
            raise Damaged(str(error)) from None

    def _carried_out(self, act: Callable[[], T]) -> T:
        """Carries out `act`. Raises OSError where the server fails, StoreTimeoutError where it does not answer."""
        import redis

        try:
            return act()
        except redis.TimeoutError:
            raise StoreTimeoutError(_hangs(self.address)) from None
        except self._error as error:
            raise OSError(0, f"{self.address}: {_plainly(error)}") from None

    def _key(self, *parts: object) -> str:
        """Returns a key of this run; all of them begin with `paceline:RUN:`."""
        return ":".join(map(str, ("paceline", self.address.run, *parts)))


def _cut(chunks: Iterable[bytes], length: int) -> Iterator[memoryview]:
    """Yields the bytes in pieces of at most `length`, without a copy."""
    for chunk in chunks:
        whole = memoryview(chunk)
        yield from (whole[at : at + length] for at in range(0, len(whole), length))


def connect(address: Address, password: str) -> tuple[Any, type[Exception]]:
    """Returns a client, and the class of error that it raises.

    Raises ConfigError in one line that names the way out.
    """
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise ConfigError(
            f"{address} needs the library redis: pip install 'paceline[redis]', or leave --store out"
        ) from None
    client = redis.Redis(
        host=address.host,
        port=address.port,
        db=address.db,
        username=address.user or None,
        password=password or None,
        ssl=address.tls,
        ssl_check_hostname=address.tls,
        retry=Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),  # one that the server has closed
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
    )
    try:
        client.ping()
    except redis.AuthenticationError:
        raise ConfigError(f"{address} needs a password, or a different one: {WAY}") from None
    except redis.TimeoutError:
        raise StoreTimeoutError(_hangs(address)) from None
    except redis.RedisError as error:
        raise ConfigError(f"{address}: {_plainly(error)}; is a redis-server running there?") from None
    return client, redis.RedisError


def _hangs(address: Address) -> str:
    """Returns the error text for a server that does not answer."""
    return f"{address}: timed out after {TIMEOUT_S:g} s; does the redis-server there hang?"


def _plainly(error: Exception) -> str:
    """Returns the first line of an error of the library, or its kind where it has no text."""
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
