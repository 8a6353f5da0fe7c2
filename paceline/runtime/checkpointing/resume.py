"""Finds where a run begins that is not the first of its kind: at a checkpoint, or at weights from a file.

The supervisor finds the checkpoint and reads all of it once (`find`); every other process is given its folder, and
reads what is its own (`open_at`).

    --resume        what is taken
    never           nothing; the weights of --init-from, if given
    auto            the newest complete checkpoint under --out; with --store the store's, if that is newer
    a run's folder  its newest complete checkpoint
    FOLDER/12       that checkpoint, and no other
    redis://.../RUN the newest complete checkpoint of that run, which is copied under --out first

How much goes on depends on what is the same as in the run that was kept (`identity`):

    nothing the same                             weights and samples
    the optimizer                                its state, too
    everything                                   clocks, versions, and what each worker remembers (`same`)
    and lock-step gradients without codecs       everything, bit for bit (`exact`)
"""

from __future__ import annotations

import contextlib
import functools
import json
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from paceline.checkpoint.folder_store import CHECKPOINTS, MODEL, FolderStore
from paceline.checkpoint.manifest import NOT_FINITE, Damaged, FileEntry, Manifest
from paceline.checkpoint.redis_store import RedisStore
from paceline.checkpoint.redis_url import NO_SECRETS, RUN, Address, StoreSecrets, is_store
from paceline.config import Config
from paceline.core.effects import Data
from paceline.core.errors import ConfigError
from paceline.core.fault_tolerance.checkpoints import resumed_tables
from paceline.core.paramserver.robust_mean import CENTRED
from paceline.core.samples.shares_kept import KeptShare
from paceline.engine.data.partition_plan import parse_partition
from paceline.observe.runs.summary import FAILED, SUMMARY, Summary
from paceline.observe.trace.trace_file import TRACE
from paceline.runtime.checkpointing import checkpoint_validation
from paceline.runtime.checkpointing.checkpoint_validation import OPTIMIZER, worker_names

if TYPE_CHECKING:  # the supervisor has no use for torch
    from torch import Tensor, nn

    from paceline.runtime.checkpointing.worker_state import WorkerState
    from paceline.runtime.spec.job_spec import Recipe

PASSED_OVER_MAX = 8
"""So many lines at most say why checkpoints do not count."""


def worker_files(
    rank: int, facts: dict[str, Any], tensors: dict[str, Tensor], written: dict[str, str]
) -> dict[str, Iterable[bytes]]:
    """Returns the contents of a worker's files by name; the second only where there are tensors.

    `written`: what tells this checkpoint from all others, put into each of its files.
    """
    from safetensors.torch import save

    said, numbers = worker_names(rank)
    text = json.dumps(facts | written).encode()
    return {said: [text], **({numbers: [save(tensors, written)]} if tensors else {})}


def identity(config: Config, optimizer: str = "") -> dict[str, Any]:
    """Returns what must be the same for a run to go on where it was; `optimizer`: that of a loop of one's own."""
    limits = () if optimizer else config.batch_limits()  # those of a loop may be its own, as its batches are
    return {
        "scheme": config.run.scheme,
        "parameters": config.scheme().parameters(),
        "seed": config.run.seed,
        "workers": config.cluster.workers,
        "servers": config.cluster.servers > 0,
        "data": [config.data.name, config.data.samples, config.data.partition, config.data.batch_size, *limits],
        "optimizer": optimizer or config.optimizer.name,
        "dropout": config.model.dropout,
        "robust": [config.robust_policy().rule, config.robust_policy().f],
    }


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Describes a checkpoint to go on from; without a `folder`, the beginning."""

    config: Config
    folder: FolderStore | None = None
    number: int = 0
    manifest: Manifest = field(default_factory=lambda: Manifest(files=(), finite=True, facts={}))
    optimizer: str = ""  # of a loop of one's own

    def of_loop(self, recipe: Recipe) -> ResumePoint:
        """Returns this point for a loop of one's own, which does what `recipe` says and not what the configuration
        does."""
        return replace(self, config=config_of_loop(self.config, recipe), optimizer=kind_of(recipe))

    def as_kept(self) -> ResumePoint:
        """Returns this point for the supervisor of such a loop, which assumes that it does what the one before
        it did."""
        kept = self.facts.get("identity")
        if self.folder is None or not kept:
            return self
        run = replace(self.config.run, scheme=kept["scheme"], seed=kept["seed"])
        parameters = {kept["scheme"]: kept["parameters"]}
        return replace(self, config=replace(self.config, run=run, parameters=parameters), optimizer=kept["optimizer"])

    @property
    def path(self) -> str:
        return str(self.folder.place(self.number)) if self.folder else ""

    @property
    def facts(self) -> dict[str, Any]:
        return self.manifest.facts

    @property
    def samples(self) -> int:
        """Returns the samples that all workers together have trained."""
        return int(self.facts.get("samples", 0))

    @property
    def same(self) -> bool:
        """Returns True if this is the same run, with as many workers. Then they go on with what they remember."""
        return self.folder is not None and self.facts.get("identity") == identity(self.config, self.optimizer)

    @property
    def version(self) -> int:
        """Returns the updates, or rounds of all, so far; 0 where they are counted anew."""
        return int(self.facts.get("version", 0)) if self.same else 0

    @property
    def exact(self) -> bool:
        """Does it go on just where it was? Lock-step rounds of gradients, kept at one round, nothing kept by codecs.

        Nor by --robust centred, which goes out from the round before.
        """
        scheme, compression = self.config.scheme(), self.config.compression
        plain = compression.up == compression.down == "none" and self.config.robust_policy().rule != CENTRED
        plain = (
            plain and not parse_partition(self.config.data.partition).leased
        )  # who has which samples is a matter of time
        kept = self.same and self.facts.get("lock_step") and self.facts.get("aligned")
        return bool(kept and plain and scheme.computes and not scheme.trains_locally)

    @property
    def batches(self) -> int:
        """Returns the mini-batches of each worker so far, where nobody remembers its own: an even share of all
        samples."""
        return self.samples // self.config.batches_of_all()

    @property
    def tables(self) -> dict[str, Any] | None:
        """Clocks and versions for a slice of a server; a worker that was lost begins with the slowest."""
        kept, done = self.facts.get("tables") if self.same else None, self._done_by_servers
        if not (kept and "clocks" in kept):
            return {"version": 0, "clocks": [], "seen": [], "shift": [], "done": done} if done else None
        return resumed_tables(kept, range(self.config.cluster.workers), done, self.samples)

    @property
    def done(self) -> Data:
        """Returns the samples that are known to be in the weights, by servers or workers; () where the data or their
        order are others."""
        return self._done_by_servers or self._pieces(self.facts.get("drawn", ()))

    @property
    def _done_by_servers(self) -> Data:
        return self._pieces((self.facts.get("tables") or {}).get("done", ()))

    def _pieces(self, pieces: Iterable[Any]) -> Data:
        """Returns pieces of the data; () where the data or their order are others."""
        known, same = self.facts.get("identity", {}), identity(self.config)
        if (known.get("data", [])[:2], known.get("seed")) != (same["data"][:2], same["seed"]):
            return ()
        return tuple((epoch, start, stop) for epoch, start, stop in pieces)

    @property
    def shares(self) -> tuple[KeptShare, ...]:
        """Returns where each worker goes on in its share, and what nobody has trained before that; () where that is not
        known, or the shares are others."""
        rows = self.facts.get("shares", ()) if self.same else ()
        return tuple(KeptShare(place, tuple((start, stop) for start, stop in spans)) for place, spans in rows)

    def place(self, rank: int) -> int | None:
        """Returns where worker `rank` goes on in its share; None where that is not known."""
        shares = self.shares
        return shares[rank].place if rank < len(shares) else None

    @property
    def skipped(self) -> bool:
        """Returns True if nobody has trained some samples before those places."""
        return any(share.untrained for share in self.shares)

    def clock(self, rank: int) -> int:
        """Returns the exchanges of a worker, as the servers know them."""
        return dict(self.tables["clocks"]).get(rank, 0) if self.tables else 0

    def memories(self, rank: int) -> WorkerState | None:
        """Returns what worker `rank` remembers; None where it begins anew. Raises ConfigError for a file that cannot be
        read."""
        from paceline.runtime.checkpointing.slice_capture import KEPT
        from paceline.runtime.checkpointing.worker_position import Position as Stand
        from paceline.runtime.checkpointing.worker_state import COMMON, RULE, USER, WorkerState, under

        said, numbers = worker_names(rank)
        names = {entry.name for entry in self.manifest.files}
        lead = self.facts.get("lead")  # of workers that hold the model, and apply its optimizer
        there = said in names  # else that worker was lost, but what is common it has to know all the same
        if not self.same or (lead is None and not there):
            return None
        facts = self._json(said if there else worker_names(int(lead or 0))[0])
        tensors = self.tensors(numbers) if there and numbers in names else {}
        entry, place = Stand.from_json(facts["entry"]), self.place(rank)
        return WorkerState(
            entry=entry if place is None else replace(entry, position=place),
            rng=facts.get("rng") if there else None,
            kept=facts.get(KEPT, {}) if there else {},
            tensors={name: v for name, v in tensors.items() if not name.startswith(f"{COMMON}.")},
            counts=facts["counts"] if there else {},
            scales={**(facts.get("scales", {}) if there else {}), **self._scales_of_common()},
            common=None if lead is None else self._common(),
            numbers=facts.get(RULE) if lead is None else self.facts["numbers"],
            optimizer=under(RULE, tensors) if lead is None else self.tensors(OPTIMIZER),
            user=facts.get(USER) if there else None,
        )

    def _scales_of_common(self) -> dict[str, float]:
        """Returns the factors of the vectors that all workers have in common, by name."""
        from paceline.runtime.checkpointing.worker_state import COMMON

        lead = self.facts.get("lead")
        scales = {} if lead is None else self._json(worker_names(lead)[0]).get("scales", {})
        return {name: scale for name, scale in scales.items() if name.startswith(f"{COMMON}.")}

    def _common(self) -> dict[str, Any]:
        from paceline.runtime.checkpointing.worker_state import COMMON, under

        said, numbers = worker_names(self.facts["lead"])
        tensors = self.tensors(numbers) if any(entry.name == numbers for entry in self.manifest.files) else {}
        return {**self._json(said)["common"], **under(COMMON, tensors)}

    @property
    def note(self) -> str:
        """Returns the line that tells the user from where the run goes on and what begins anew; "" for the
        beginning."""
        if self.folder is None:
            return ""
        head = f"resumes checkpoint {self.number} of {self.folder.root} ({self.samples:,} samples)"
        if self.exact:
            return f"{head}: just where it was"
        kept = "weights, optimizer and samples" if self.optimizer_fits else "weights and samples"
        if self.same:
            return f"{head}: {kept} go on, and so does what each worker remembers{self._but}"
        return f"{head}: {kept} go on, clocks and what workers remember begin anew"

    @property
    def _but(self) -> str:
        if "whole" not in self.facts:
            return "; an older version wrote it: what else servers and roles keep, such as outer momenta, begins anew"
        if self.config.scheme().coordinator_counts:
            return f"; its phases begin anew, with the first{self._under_way}"
        if not self.facts["whole"]:
            return f"; its run ended within a round, so that was a shorter one{self._under_way}"
        return self._under_way

    @property
    def _under_way(self) -> str:
        """Returns what the line says where nobody knows which samples are in the weights."""
        if self.config.cluster.workers == 1 or self.facts.get("settled"):
            return ""
        if self.config.scheme().equal_rounds:
            left = "; a worker had left or was lost: samples of its share may be trained twice, or not at all"
            return left if self.facts.get("moved") else ""
        return "; batches that were under way may be trained twice, or not at all"

    @property
    def optimizer_fits(self) -> bool:
        """Returns True if the checkpoint has the state of the optimizer that this run uses."""
        same = self.facts.get("identity", {}).get("optimizer") == identity(self.config, self.optimizer)["optimizer"]
        return same and any(entry.name == OPTIMIZER for entry in self.manifest.files)

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Returns the tensors of one of its files, by name. Raises ConfigError."""
        from safetensors.torch import load

        try:
            return dict(load(self._bytes(name)))
        except SafetensorError as error:
            raise ConfigError(f"{self.path}: {name}: {error}") from None

    def _json(self, name: str) -> dict[str, Any]:
        """Returns what a file of a worker says. Raises ConfigError where it is damaged."""
        assert self.folder is not None
        try:
            return checkpoint_validation.remembered(self.folder, self.number, self._entry(name))
        except Damaged as error:
            raise ConfigError(f"{self.path}: {error}") from None

    def _bytes(self, name: str) -> bytes:
        assert self.folder is not None
        try:
            return self.folder.load(self.number, self._entry(name))
        except Damaged as error:
            raise ConfigError(f"{self.path}: {error}") from None

    def _entry(self, name: str) -> FileEntry:
        """Returns the manifest's entry of a file. Raises ConfigError where the checkpoint has none."""
        found = next((entry for entry in self.manifest.files if entry.name == name), None)
        if found is None:
            raise ConfigError(f"{self.path} has no {name}")
        return found

    def load_into(self, model: nn.Module) -> None:
        """Loads the checkpoint's weights, or those of --init-from, into `model`; does nothing without either.

        Raises ConfigError where they do not fit.
        """
        if self.folder is not None:
            load_weights(model, self.tensors(MODEL), self.path)
        elif self.config.checkpoint.init_from:
            load_weights(model, read_weights(self.config.checkpoint.init_from), self.config.checkpoint.init_from)


def config_of_loop(config: Config, recipe: Recipe) -> Config:
    """Returns `config` with the scheme, the seed and the codecs of a loop of one's own."""
    run = replace(config.run, scheme=recipe.scheme, seed=recipe.seed)
    compression = replace(config.compression, up=recipe.codecs.up, down=recipe.codecs.down)
    return replace(config, run=run, compression=compression, parameters={recipe.scheme: recipe.parameters})


def kind_of(recipe: Recipe) -> str:
    """Returns a text that tells the optimizer of one loop from that of another: its kind, and the length of each
    group."""
    by_path, groups = recipe.optimizer.by_path, [group.length for group in recipe.optimizer.groups]
    return f"{by_path.kind if by_path else recipe.optimizer.name} {groups}"


def load_weights(model: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Loads weights by name. Raises ConfigError for the first tensor that is missing, unknown or of another shape."""
    from paceline.engine.model.plain_names import in_names_of  # imported here, as the supervisor has no use for torch

    own, weights = model.state_dict(), in_names_of(model, weights)
    for name, tensor in own.items():
        if name not in weights:
            raise ConfigError(f"{source} has no {name}, which the model has: give the --model it was made of")
        if weights[name].shape != tensor.shape:
            found, wanted = tuple(weights[name].shape), tuple(tensor.shape)
            raise ConfigError(
                f"{source}: {name} has shape {found}, the model wants {wanted}: check --model and --width"
            )
    unknown = sorted(set(weights) - set(own))
    if unknown:
        raise ConfigError(f"{source} has {unknown[0]}, which the model does not: give the --model it was made of")
    model.load_state_dict(weights)


def read_weights(path: str) -> dict[str, Tensor]:
    """Reads the weights of a safetensors file. Raises ConfigError."""
    from safetensors.torch import load_file

    with _named(path):
        return dict(load_file(path))


def check_weights(path: str) -> None:
    """Raises ConfigError unless it is a safetensors file that is whole; reads its header only."""
    with _named(path), safe_open(path, framework="np"):
        pass


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Turns errors of a file of `--init-from` into ConfigError, which names the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"--init-from {path}: {getattr(error, 'strerror', None) or error}") from None


def find(config: Config, secrets: StoreSecrets = NO_SECRETS) -> tuple[ResumePoint, list[str]]:
    """Returns where the run of `config` begins, and lines that say why newer checkpoints do not count.

    `secrets`: of the store, if there is one; what is taken from there is copied under --out first. Raises
    ConfigError.
    """
    wanted = config.checkpoint.resume
    if is_store(wanted) or config.checkpoint.store:
        refused = _fetched(config, secrets)
        if is_store(wanted):
            wanted = "auto"
        start, more = _find(config, wanted)
        return start, _shortened([*refused, *more])
    start, refused = _find(config, wanted)
    return start, _shortened(refused)


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - PASSED_OVER_MAX
    return [*lines[:PASSED_OVER_MAX], f"{more} more checkpoints are passed over"] if more > 0 else lines


def store_of(config: Config, secrets: StoreSecrets) -> RedisStore | None:
    """Returns the store of --store, for the checkpoints of this run; None without one. Raises ConfigError."""
    if not config.checkpoint.store:
        return None
    address = Address.parse(config.checkpoint.store)
    run = address.run or Path(config.run.out).resolve().name
    if not RUN.fullmatch(run):
        raise ConfigError(f"--store: {run!r} cannot be the name of a run there: name one, {address}/RUN")
    return RedisStore(replace(address, run=run), secrets)


def _fetched(config: Config, secrets: StoreSecrets) -> list[str]:
    """Copies the newest checkpoint of the store under --out, if the run is to go on from there; returns why others do
    not count.

    Raises ConfigError, also where checkpoints of this run would be mixed with those of another run in --store.
    """
    wanted, folder = config.checkpoint.resume, FolderStore(Path(config.run.out) / CHECKPOINTS)
    named = is_store(wanted)
    refused: list[str] = []
    try:
        if wanted == "auto" or named:
            store = RedisStore(Address.parse(wanted), secrets) if named else store_of(config, secrets)
            assert store is not None
            refused = _taken(store, folder, named=named)
        mine = None if wanted == "auto" else store_of(config, secrets)
        older = 0 if wanted == "never" else max(folder.numbers(), default=0)
        if mine is not None and max(mine.numbers(), default=0) > older:  # the new ones would count as the oldest there
            raise ConfigError(
                f"--store {mine} has checkpoints of a run: go on with it by --resume auto, or give another --out"
            )
    except (OSError, Damaged) as error:
        raise ConfigError(f"--resume {wanted}: {getattr(error, 'strerror', None) or error}") from None
    return refused


def _taken(store: RedisStore, folder: FolderStore, *, named: bool) -> list[str]:
    """Copies the newest good checkpoint of `store` into `folder`, if it is newer; returns why others do not count.

    `named`: the user named the store, so that finding none raises ConfigError.
    """
    here = max(folder.numbers(), default=0)
    refused: list[str] = []
    for number in reversed(store.numbers()):
        if not named and number <= here:
            return refused
        try:
            _take(store, number, folder, max(number, here + 1))
            return refused
        except Damaged as error:
            refused.append(f"checkpoint {number} of the store is passed over: {error}")
    if named:
        why = f": {refused[0]}" if refused else ""
        raise ConfigError(f"--resume {store}: no checkpoint to go on from there{why}")
    return refused


def _take(store: RedisStore, number: int, folder: FolderStore, as_number: int) -> None:
    """Copies one checkpoint, and verifies it on the way, so that it comes over the network once. Raises Damaged, or
    OSError."""
    if not store.manifest(number).finite:
        raise Damaged(NOT_FINITE)
    folder.take(store, number, as_number)
    try:
        checkpoint_validation.check(folder, as_number, folder.manifest(as_number))
    except Damaged:
        folder.delete(as_number)
        raise


def _find(config: Config, wanted: str) -> tuple[ResumePoint, list[str]]:
    """Returns the beginning on this machine's disk, and why newer checkpoints do not count. Raises ConfigError."""
    if wanted == "never":
        if config.checkpoint.init_from:
            check_weights(config.checkpoint.init_from)
        return ResumePoint(config), []
    path = Path(config.run.out if wanted == "auto" else wanted)
    if wanted != "auto" and path.name.isdecimal() and not (path / CHECKPOINTS).is_dir():
        start = open_at(config, str(path))
        try:
            checkpoint_validation.check(FolderStore(path.parent), start.number, start.manifest)
        except Damaged as error:
            raise ConfigError(f"--resume {path}: {error}") from None
        return start, []
    folder = FolderStore(path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() or wanted == "auto" else path)
    number, refused = _newest(folder)
    if number is None:
        if wanted == "auto" and not refused:
            return ResumePoint(config), _begins_anew(path)
        why = f": {refused[0]}" if refused else ""
        raise ConfigError(f"--resume {wanted}: no checkpoint to go on from in {folder.root}{why}")
    return ResumePoint(config, folder, number, folder.manifest(number)), refused


def _newest(folder: FolderStore) -> tuple[int | None, list[str]]:
    """Returns the number of the newest whole checkpoint, or None, and why others do not count. Raises ConfigError."""
    try:
        return folder.newest(functools.partial(checkpoint_validation.check, folder))
    except OSError as error:
        raise ConfigError(f"--resume: {folder.root}: {error.strerror}") from None


def _begins_anew(out: Path) -> list[str]:
    """Returns a line for a run that was to go on, but has kept no checkpoint; [] for the first run in that folder.

    Raises ConfigError where a run in that folder is over, since what it left would be overwritten.
    """
    reason = ""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        reason = Summary.from_json((out / SUMMARY).read_text()).reason
    failed = reason.startswith(FAILED) or reason.rpartition(" ")[2] in signal.Signals.__members__
    if reason and not failed:
        raise ConfigError(
            f"--resume auto: the run in {out} is over ({reason}) and has kept no checkpoint; name another --out"
        )
    anew = f"--resume auto: {out} holds a run that has no checkpoint yet: it begins anew, and its trace is set aside"
    return [anew] if (out / TRACE).exists() else []


def open_at(config: Config, path: str) -> ResumePoint:
    """Opens one checkpoint; without a path it returns the beginning. Raises ConfigError."""
    if not path:
        return ResumePoint(config)
    folder, number = FolderStore(Path(path).parent), int(Path(path).name)
    try:
        return ResumePoint(config, folder, number, folder.manifest(number))
    except Damaged as error:
        raise ConfigError(f"--resume {path}: {error}") from None


def parts_of(vectors: dict[str, Tensor], part: slice) -> dict[str, Tensor]:
    """Returns the part of each vector that a slice of the model holds, as copies."""
    return {name: v[part].clone() for name, v in vectors.items()}
