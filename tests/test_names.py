"""Names that nobody outside the project would guess are gone, and stay so."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

from paceline.core.fault_tolerance.replication import Copies
from paceline.core.role import Role

ROOT = Path(__file__).resolve().parent.parent

PRIVATE_WORDS = {
    "Admission": "MessageChecks",
    "Album": "CandidateModels",
    "Authority": "CertificateAuthority",
    "Awaited": "AwaitedSeconds",
    "Beating": "Heartbeat",
    "Belongings": "WorkerStateCapture",
    "Card": "Nic",
    "Carriage": "CollectiveTiming",
    "Churn": "Elasticity",
    "Claim": "RunLock",
    "Conductor": "RunSupervisor",
    "ConfirmedMembers": "AckedMembership",
    "Course": "RunState",
    "Detour": "ProxiedTransport",
    "Diary": "PositionLog",
    "Entry": "Position",
    "Errand": "PendingCall",
    "Exhibit": "PublishedState",
    "Folder": "FolderStore",
    "Followed": "LrWatcher",
    "Foretold": "Forecast",
    "Gate": "GateSettings",
    "GatePolicy": "GradientCheckPolicy",
    "Hand": "ExternalProcess",
    "HandCrew": "ExternalLauncher",
    "Holdup": "Straggler",
    "Hosted": "ServedSlice",
    "Judged": "EvaluationReport",
    "Keeper": "ActorKeeper",
    "Lanes": "Striping",
    "Lending": "SimulatedSampleLeases",
    "Life": "Incarnation",
    "Listener": "RecoveryListener",
    "Loan": "BufferRef",
    "LocalCrew": "LocalLauncher",
    "Looking": "StateReader",
    "LoopBox": "EffectLoop",
    "Memories": "WorkerState",
    "Neighbours": "PeerConnections",
    "News": "StatusLine",
    "Notice": "PreemptionNotice",
    "OptimizerMemory": "OptimizerState",
    "Outbox": "MessageSender",
    "Over": "RunOver",
    "Passage": "WireCodec",
    "Pending": "PendingReply",
    "Places": "SampleRanges",
    "Refused": "AgentRefused",
    "Relays": "ProxySet",
    "RemoteCrew": "RemoteLauncher",
    "Rider": "WorkerTiming",
    "Roll": "RunRoster",
    "Rope": "ChunkedVector",
    "Rule": "ServerOptimizer",
    "ScriptCrew": "ScriptLauncher",
    "Seat": "ProcessSpec",
    "SessionLender": "LeaseClient",
    "Setting": "Flag",
    "Shares": "TimeShares",
    "Sharing": "ZeroCopy",
    "Shelf": "CheckpointStore",
    "SliceGate": "SliceGradientCheck",
    "Spool": "DiskBuffer",
    "Spooled": "DiskVector",
    "Standing": "StatusFile",
    "Starter": "EngineCommand",
    "Steps": "LocalWork",
    "Storm": "FaultRunner",
    "Settled": "SamplesResolved",
    "Talk": "ParentStream",
    "ThreadCrew": "ThreadLauncher",
    "Vault": "SnapshotStore",
    "View": "ProgressDisplay",
    "VulnerableCrew": "FaultyLauncher",
    "Way": "Proxy",
    "Withdrawn": "StateGone",
    "Word": "LaunchMessage",
}
"""Former names of classes, each with the standard term that took its place."""

PRIVATE_IDENTIFIERS = {
    "album": "candidates",
    "barred": "banned",
    "begin_with": "initial_workers",
    "begin_view": "begin_server_view",
    "belongings": "capture",
    "churn": "elasticity",
    "conductor": "supervisor",
    "conductor_of": "make_supervisor",
    "course": "run_state",
    "crew": "launcher",
    "detour": "proxied",
    "diary": "position_log",
    "errand": "call",
    "exhibit": "read_published",
    "exhibits": "published",
    "foretold": "forecast",
    "holdup": "straggler",
    "ledger": "statistics",
    "life": "incarnation",
    "life_of": "incarnation_of",
    "lives": "incarnations",
    "make_shares": "make_partition",
    "parse_shares": "parse_partition",
    "peek": "read_state",
    "peek_model": "read_model",
    "put_out": "expel",
    "rider": "timing",
    "riders": "timings",
    "roll": "roster",
    "seat": "spec",
    "seats": "specs",
    "send_home": "abort_joins",
    "storm": "runner",
    "tally": "totals",
    "vault": "snapshots",
    "victims": "targets",
    "told_by": "records_from",
    "when_kept": "after_replicated",
}
"""Former names of functions, parameters and attributes, with or without a leading underscore, and what each is now."""

FORMER_FLAGS = {"--shares": "--partition", "--mean": "--allreduce", "--begin-with": "--initial-workers"}

CALLBACKS = {"how_far", "judged", "adopt", "gone", "came", "settled", "undone", "restore"}
"""Former names of what a driver calls on a role: progress_key, on_evaluation, load_join_state, on_worker_left,
on_worker_joined. One that overrides a former name is never called."""


def names_in(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.ClassDef(name=name) | ast.alias(name=name):
                found.add(name)
    return found


def identifiers_in(tree: ast.AST) -> set[str]:
    """`names_in`, and what functions, their parameters and keywords are called."""
    found = names_in(tree)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                found.add(name)
    return found


def test_no_code_uses_a_private_word_for_a_class() -> None:
    left = {
        f"{file.relative_to(ROOT)}: {name}, now {PRIVATE_WORDS[name]}"
        for folder in ("paceline", "tests", "benchmarks", "scripts", "examples")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name in names_in(ast.parse(file.read_text())) & PRIVATE_WORDS.keys()
    }
    assert left == set()


def test_no_code_uses_a_private_word_for_anything_else() -> None:
    left = {
        f"{file.relative_to(ROOT)}: {name}, now {PRIVATE_IDENTIFIERS[name.strip('_')]}"
        for folder in ("paceline", "tests", "benchmarks", "scripts", "examples")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name in identifiers_in(ast.parse(file.read_text()))
        if name.strip("_") in PRIVATE_IDENTIFIERS
    }
    assert left == set()


def test_no_page_names_a_flag_of_an_earlier_release() -> None:
    pages = [page for page in (*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")) if page.name != "CHANGELOG.md"]
    left = {
        f"{page.relative_to(ROOT)}: {flag}, now {now}"
        for page in pages
        for flag, now in FORMER_FLAGS.items()
        if re.search(rf"(?<![\w-]){flag}(?![\w-])", page.read_text())
    }
    assert left == set()


def test_no_page_names_a_class_by_a_private_word() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    left = {
        f"{page.name}: {name}, now {term}"
        for page in pages
        for name, term in PRIVATE_WORDS.items()
        if page.name != "CHANGELOG.md" and f"`{name}`" in page.read_text()
    }
    assert left == set()


def roles(cls: type[Role] = Role) -> list[type[Role]]:
    return [cls, *(role for kind in cls.__subclasses__() for role in roles(kind))]


def test_roles_have_no_callback_under_a_former_name() -> None:
    for folder in ("core", "schemes"):
        for module in pkgutil.walk_packages([str(ROOT / "paceline" / folder)], f"paceline.{folder}."):
            importlib.import_module(module.name)
    found = roles()
    assert Copies in found
    assert len(found) > 40
    assert {f"{role.__qualname__}.{name}" for role in found for name in CALLBACKS if hasattr(role, name)} == set()
