"""Servers and links that hold everybody up are named on simulated runs; on healthy ones nobody is."""

from __future__ import annotations

import pytest

import paceline.schemes  # noqa: F401  enters the catalogue
from paceline.core.scheme import make
from paceline.core.trace import Applied, MemberChange, Span
from paceline.core.vector import Ghost
from paceline.observe.watch.headline import headline, links_text
from paceline.observe.watch.page_data import servers
from paceline.observe.watch.state import PageState
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.toml_file import parse

WORKERS = """
step_s = 0.02
[[hosts]]
name = "w"
count = {workers}
[[hosts.devices]]
jitter = {jitter}
"""
SERVER = """
[[hosts]]
name = "s"
servers = {servers}
bandwidth_gbps = {gbps}
latency_s = {latency_s}
"""
ONE_FAR = """
[[hosts]]
name = "far"
bandwidth_gbps = 0.01
[[hosts.devices]]
"""


def played(scheme: str, cluster: str) -> PageState:
    parsed = parse(cluster)
    state = PageState(parsed.workers)
    work = LocalSteps(lambda rank, rng: parsed.step_s, samples=lambda rank: 32)
    Simulation(make(scheme, {}), Ghost(10_000), work, cluster=parsed, trace=state.add, watched=False).run(until=6.0)
    return state


def cluster(
    *, workers: int = 4, jitter: float = 0.05, gbps: float = 10.0, latency_s: float = 0.0, servers: int = 1
) -> str:
    server = SERVER.format(servers=servers, gbps=gbps, latency_s=latency_s)
    return WORKERS.format(workers=workers, jitter=jitter) + server


def sentence(state: PageState) -> str:
    return str(headline(state)["sentence"])


def exchange_text(state: PageState) -> str:
    return sentence(state) if state.verdict.kind == "exchange" else links_text(state)


@pytest.mark.parametrize("scheme", ["bsp", "asp", "ssp"])
def test_a_thin_link_of_the_server_is_named(scheme: str) -> None:
    said = sentence(played(scheme, cluster(gbps=0.01)))
    assert said.startswith("Server 0 or its link holds everybody up")


def test_a_far_server_is_named() -> None:
    assert sentence(played("bsp", cluster(latency_s=0.05))).startswith("Server 0 or its link holds everybody up")


def test_of_several_servers_none_is_named_where_all_are_alike() -> None:
    state = played("bsp", cluster(latency_s=0.05, servers=3))
    assert sentence(state).startswith("The 3 servers or their links hold everybody up, none more than the others: ")
    assert [row["state"] for row in servers(state)] == ["", "", ""]


@pytest.mark.parametrize("scheme", ["bsp", "asp", "ssp"])
@pytest.mark.parametrize("slow", [{"latency_s": 0.05}, {"gbps": 0.01}])
def test_of_several_servers_the_slow_one_is_named_in_the_sentence_and_its_row(
    scheme: str, slow: dict[str, float]
) -> None:
    near, far = (
        cluster(servers=2),
        SERVER.replace('"s"', '"t"').format(**{"servers": 1, "gbps": 10.0, "latency_s": 0.0} | slow),
    )
    state = played(scheme, near + far)
    assert sentence(state).startswith("Server 2 or its link, ")
    assert [row["state"] for row in servers(state)] == ["", "", "slow"]
    assert max(row["late_ms"] for row in servers(state)[:2]) < 1.0


def test_a_lost_server_is_named_until_another_one_has_taken_its_place() -> None:
    state = PageState(2)
    for number in range(2):
        state.add(MemberChange(at=0.0, party=f"server {number}", event="joined", host=f"node-{number}"))
    state.add(MemberChange(at=4.0, party="server 1", event="lost", reason="it left"))
    state.add(Span(at=6.0, rank=0, activity="computing", seconds=0.1, steps=1, samples=8, exchanges=1))
    assert sentence(state) == (
        "Server 1 on node-1 is lost since 2.0 s: everybody waits until another one has taken its place."
    )
    assert [(row["shard"], row["host"], row["state"]) for row in servers(state)] == [
        (0, "node-0", ""),
        (1, "node-1", "lost"),
    ]
    state.add(MemberChange(at=7.0, party="server 1", event="replaced", reason="from a copy"))
    assert "lost" not in sentence(state)
    assert [row["state"] for row in servers(state)] == ["", ""]


def test_a_server_that_answers_late_is_told_from_a_thin_link() -> None:
    state = PageState(workers=2)
    for n in range(40):
        for rank in range(2):
            at = 0.4 * n
            state.add(Span(at=at + 0.1, rank=rank, activity="computing", seconds=0.1, steps=1, samples=8, exchanges=1))
            state.add(Span(at=at + 0.38, rank=rank, activity="waiting", seconds=0.28))
            state.add(Span(at=at + 0.4, rank=rank, activity="communicating", seconds=0.02))
        state.add(Applied(at=at, shard=0, ranks=(0, 1), version=n + 1, staleness=0, weight=1.0, samples=16))
    assert "280 ms of it into waiting for the server" in sentence(state)


@pytest.mark.parametrize("scheme", ["bsp", "asp"])
def test_a_worker_with_a_thin_link_is_named_with_its_link(scheme: str) -> None:
    said = sentence(played(scheme, cluster(workers=3) + ONE_FAR))
    assert ("Worker 3 holds the others up" in said) == (scheme == "bsp")
    assert "The link of worker 3 is slow" in said


@pytest.mark.parametrize("scheme", ["bsp", "asp", "ssp", "esync", "localsgd"])
@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.6])
def test_nobody_is_named_in_a_healthy_run_however_much_its_steps_vary(scheme: str, jitter: float) -> None:
    state = played(scheme, cluster(workers=8, jitter=jitter))
    assert exchange_text(state) == ""
    assert "link" not in sentence(state)


def test_a_straggler_is_not_the_fault_of_servers() -> None:
    slow = '\n[[hosts]]\nname = "slow"\n[[hosts.devices]]\nfactor = 8\n'
    assert exchange_text(played("bsp", cluster(workers=3) + slow)) == ""


def test_where_all_have_left_the_page_does_not_say_that_nobody_has_begun() -> None:
    state = played("bsp", cluster(workers=2))
    for rank in range(2):
        state.add(MemberChange(at=state.now, party=f"worker {rank}", event="left"))
    assert sentence(state) == "All workers have left."
