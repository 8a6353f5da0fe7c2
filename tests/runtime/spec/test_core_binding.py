"""Which CPUs the workers of a host get, on machines made for the test; and that a process is bound to them."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paceline.config import Config, build
from paceline.core.errors import ConfigError
from paceline.live.cpu_topology import Cpu, allowed_cpus
from paceline.runtime.spec import core_binding
from paceline.runtime.spec.core_binding import bind, binding_notes, part_of, parts_of_host, plan_cores
from paceline.runtime.spec.process_spec import ProcessSpec


def machine(sockets: int, cores: int, threads: int = 1, *, without: Sequence[int] = ()) -> list[Cpu]:
    """First threads have the lower numbers, as on Intel's machines; `without` are offline, or not ours."""
    found = []
    for cpu in range(sockets * cores * threads):
        core = cpu % (sockets * cores)
        found.append(Cpu(cpu, core=core, node=core // cores))
    return [cpu for cpu in found if cpu.number not in without]


def config_of(bind_cores: str, **cluster: object) -> Config:
    return build(
        {
            "run": {"scheme": "bsp", "script": "train.py"},
            "stop": {"until_stopped": True},
            "cluster": {"bind_cores": bind_cores, **cluster},
        }
    )


def test_two_sockets_are_divided_into_whole_cores_of_one_socket() -> None:
    cpus = machine(2, 4, 2)  # node 0: cores 0-3 with threads 8-11; node 1: cores 4-7 with threads 12-15
    assert plan_cores(cpus, [1, 1]) == [{0, 1, 2, 3, 8, 9, 10, 11}, {4, 5, 6, 7, 12, 13, 14, 15}]
    assert plan_cores(cpus, [1, 1, 1, 1]) == [{0, 1, 8, 9}, {4, 5, 12, 13}, {2, 3, 10, 11}, {6, 7, 14, 15}]
    assert plan_cores(cpus, [1, 1, 1]) == [{0, 1, 8, 9}, {4, 5, 6, 7, 12, 13, 14, 15}, {2, 3, 10, 11}]


def test_a_worker_crosses_sockets_only_where_it_wants_more_than_one_has() -> None:
    cpus = machine(2, 4)
    assert plan_cores(cpus, [4]) == [{0, 1, 2, 3}]
    assert plan_cores(cpus, [6]) == [set(range(8))]


def test_who_wants_more_threads_has_more_cores() -> None:
    assert [len(part) for part in plan_cores(machine(1, 8), [6, 2])] == [6, 2]
    assert [len(part) for part in plan_cores(machine(1, 6), [4, 1, 1])] == [4, 1, 1]


def test_hardware_threads_are_dealt_where_cores_are_too_few() -> None:
    assert plan_cores(machine(1, 2, 2), [1, 1, 1]) == [{0, 2}, {1}, {3}]
    assert plan_cores(machine(1, 2, 2), [1] * 4) == [{0}, {2}, {1}, {3}]


def test_more_workers_than_cpus_are_not_bound() -> None:
    assert plan_cores(machine(1, 2), [1, 1, 1]) == [frozenset()] * 3


def test_a_mask_that_is_smaller_than_the_machine_holds() -> None:
    """As of a control group, `taskset` or CPUs that are offline: of one core a thread is left, of one socket a core."""
    cpus = machine(2, 2, 2, without=[0, 3, 6, 7])  # left: 4 of core 0, 1 and 5 of core 1, 2 of core 2
    assert plan_cores(cpus, [1, 1, 1]) == [{4}, {2}, {1, 5}]
    assert plan_cores(cpus, [1, 1]) == [{1, 4, 5}, {2}]


@given(
    sockets=some.integers(1, 4),
    cores=some.integers(1, 6),
    threads=some.integers(1, 3),
    wanted=some.lists(some.integers(1, 8), min_size=1, max_size=20),
    away=some.sets(some.integers(0, 71)),
)
def test_on_any_machine_no_two_share_a_core_while_others_idle(
    sockets: int, cores: int, threads: int, wanted: list[int], away: set[int]
) -> None:
    cpus = machine(sockets, cores, threads, without=sorted(away))
    parts = plan_cores(cpus, wanted)
    core_of = {cpu.number: cpu.core for cpu in cpus}
    there = set(core_of.values())
    assert len(parts) == len(wanted)
    if len(cpus) < len(wanted):
        assert not any(parts)
        return
    assert all(parts)
    taken = Counter(cpu for part in parts for cpu in part)
    assert taken.keys() <= core_of.keys()
    assert max(taken.values()) == 1, "nobody shares a CPU"
    users = Counter(core for part in parts for core in {core_of[cpu] for cpu in part})
    if len(there) >= len(wanted):
        assert max(users.values()) == 1, "nobody shares a core"
    else:
        assert users.keys() == there, "no core idles"


def test_a_list_is_divided_or_says_each_workers_part() -> None:
    cpus = machine(1, 8)
    assert parts_of_host(config_of("4-7"), [0, 1], cpus) == [{4, 5}, {6, 7}]
    assert parts_of_host(config_of("0/3-4/7"), [0, 1], cpus) == [{0}, {3, 4}]
    assert parts_of_host(config_of("6"), [0, 1], cpus) == [{6}, {6}], "more workers than CPUs: all of them, as told"
    assert parts_of_host(config_of("none"), [0, 1], ()) == [frozenset(), frozenset()]


def test_threads_and_ranks_say_what_a_worker_wants() -> None:
    found = parts_of_host(config_of("auto", threads=2, ranks="3,1", workers=2), [0, 1], machine(1, 8))
    assert [len(part) for part in found] == [6, 2]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0-9", "--bind-cores 0-9: a process may use CPUs 0-3 here, and not 4-9"),
        ("0/1", "--bind-cores 0/1: it has 2 sets of CPUs for the 3 workers here"),
    ],
)
def test_what_a_host_has_not_is_an_error_before_anything_starts(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"^{why}$"):
        parts_of_host(config_of(text), [0, 1, 2], machine(1, 4))
    with pytest.raises(ConfigError, match="this system binds no process to CPUs; leave it out"):
        parts_of_host(config_of("auto"), [0], ())


def spec_of(rank: int, bind_cores: str, **more: object) -> ProcessSpec:
    spec = ProcessSpec(party=f"worker {rank}", workers=4, servers=0, coordinator="", token="")
    return dataclasses.replace(spec, config=config_of(bind_cores, workers=4, servers=0), **more)  # type: ignore[arg-type]


def test_each_process_finds_its_part_by_the_ranks_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_binding, "read_topology", lambda _: tuple(machine(1, 4)))
    assert [part_of(spec_of(rank, "auto")) for rank in range(4)] == [{0}, {1}, {2}, {3}]
    assert part_of(spec_of(2, "auto", neighbours=(0, 2))) == {2, 3}
    assert part_of(spec_of(1, "auto", neighbours=(0, 2))) == frozenset(), "it has moved here from a host that was lost"
    assert part_of(dataclasses.replace(spec_of(0, "auto"), party="server 0")) == frozenset()
    assert part_of(ProcessSpec.from_json(spec_of(2, "auto", neighbours=(0, 2)).to_json())) == {2, 3}


def _bound(part: frozenset[int], said: multiprocessing.Queue[list[int]]) -> None:
    import psutil

    bind(part)
    said.put(psutil.Process(os.getpid()).cpu_affinity())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux binds processes")
def test_a_process_is_bound_as_psutil_sees_it() -> None:
    pytest.importorskip("psutil")
    context = multiprocessing.get_context("fork")
    for part in (frozenset({max(allowed_cpus())}), frozenset()):
        said: multiprocessing.Queue[list[int]] = context.Queue()
        process = context.Process(target=_bound, args=(part, said))
        process.start()
        assert said.get(timeout=30) == sorted(part or allowed_cpus())
        process.join()


def test_the_first_lines_say_what_each_worker_may_use() -> None:
    workers = {rank: ("a" if rank < 2 else "b", frozenset({2 * rank, 2 * rank + 1})) for rank in range(3)}
    assert binding_notes(workers) == ["cores of a: worker 0 has 0-1; worker 1 has 2-3", "cores of b: worker 2 has 4-5"]
    same = {rank: ("a", frozenset({0, 1})) for rank in range(3)}
    assert binding_notes(same) == ["cores of a: all 3 workers share CPUs 0-1"]
    many = {rank: ("a", frozenset({rank})) for rank in range(10)}
    assert binding_notes(many)[0].endswith("; worker 7 has 7; 2 more")
    assert json.dumps(binding_notes({})) == "[]"
