"""How many events a second the simulator carries out, and in how much memory, by the number of workers.

python benchmarks/sim_scale.py [--schemes bsp,asp,...] [--workers 16,64,...] [--servers 1] [--rounds 3]

An event is one entry of the heap: a message that arrives, or a step that ends. Timing only (vectors without numbers),
steps of 1 to 4 s drawn for each worker, invariants off. Every point runs in a process of its own, several times; the
figure is the median, the memory that of the whole process at its peak, `growth` what an event costs in terms of what
it costs with 64 workers. `turns` is the same cost in turns of a loop of plain Python that is timed beside it, in the
same process: where the machine is slow that day, or shared, events a second fall and this number hardly moves. `calls`
are the calls of functions an event makes, which no machine changes. The claims, for every scheme: with 4,096 workers at
least 150,000 events a second, below 400 MiB; with 10,240 an event costs at most 1.5 times what it costs with 64;
100,000 fit into 1 GiB; and an event makes at most 40 calls, and hardly more of them with 4,096 workers than with 64 (a
twentieth). The exit code is 1 when one of them fails.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

WORKERS = "16,64,256,1024,4096,10240,100000"
SCHEMES = "bsp,asp,ssp,gsp,esync,diloco"
EVENTS_PER_S, MIB, AT = 150_000, 400, 4096
GROWTH, FAR = 1.5, 10240
MANY_MIB, MANY = 1024, 100_000
CALLS_MAX, CALLS_GROWTH, FROM = 40, 1.05, 64


GROUP = 32
"""Workers of a group under tiers."""


def parameters(scheme: str, workers: int) -> dict[str, Any]:
    """Parameters that are not the defaults: groups under tiers, whose size does not grow with the run."""
    if scheme != "tiers":
        return {}
    return {"groups": ";".join(",".join(map(str, range(a, min(a + GROUP, workers)))) for a in range(0, workers, GROUP))}


def seconds_per_turn(turns: int = 200_000) -> float:
    """Of a loop that does what a simulator does most: make small objects and put them into tables."""
    table: dict[int, tuple[int, int]] = {}
    begin = time.process_time()
    for turn in range(turns):
        table[turn & 1023] = (turn, turn + 1)
    return (time.process_time() - begin) / turns


def calls_per_event(sim: Any, events: int) -> float:
    """Of functions, Python's own and built-in ones, over that many events more."""
    profile, before = cProfile.Profile(), sim.events
    gc.collect()  # finalizers of what others left behind would be counted as well
    gc.disable()
    try:
        profile.runcall(sim.run, max_events=before + events)
    finally:
        gc.enable()
    return float(pstats.Stats(profile).total_calls / (sim.events - before))  # type: ignore[attr-defined]


def one(scheme: str, workers: int, servers: int, events: int) -> dict[str, float]:
    """In this process: events a second after the first exchange of everybody, and the peak of memory."""
    import paceline.schemes  # noqa: F401  enters them into the registry
    from paceline.core.scheme import make
    from paceline.core.vector import Ghost
    from paceline.sim import LocalSteps, Simulation, UniformSeconds

    work = LocalSteps(UniformSeconds(1.0, 4.0))
    made = make(scheme, parameters(scheme, workers))
    sim = Simulation(made, Ghost(1_000_000), work, workers=workers, servers=servers, watched=False)
    sim.run(max_events=6 * workers * max(1, servers))
    turn_s = seconds_per_turn()
    before, begin = sim.events, time.process_time()
    sim.run(max_events=before + events)
    event_s = (time.process_time() - begin) / (sim.events - before)
    turn_s = (turn_s + seconds_per_turn()) / 2
    calls = calls_per_event(sim, max(events // 5, 6 * workers))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "events_per_s": 1 / event_s,
        "turns": event_s / turn_s,
        "turns_per_s": 1 / turn_s,
        "mib": peak,
        "calls": calls,
    }


def measured(scheme: str, workers: int, options: argparse.Namespace) -> dict[str, float]:
    runs = []
    for _ in range(options.rounds):
        command = [sys.executable, __file__, "--one", scheme, "--workers", str(workers)]
        command += ["--servers", str(options.servers), "--events", str(options.events)]
        runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def short_of(workers: int, rate: float, mib: float, growth: float, calls: float, more_calls: float) -> list[str]:
    """Returns which claims a point falls short of. growth, more_calls: in terms of a run of FROM workers."""
    found = {
        f"{rate:,.0f} events/s": workers == AT and rate < EVENTS_PER_S,
        f"{mib:.0f} MiB with {workers:,} workers": (workers == AT and mib > MIB)
        or (workers == MANY and mib > MANY_MIB),
        f"an event costs {growth:.2f} times as much": workers == FAR and growth > GROWTH,
        f"{calls:.1f} calls with {workers:,} workers": calls > CALLS_MAX,
        f"{more_calls:.2f} times as many calls": workers == AT and more_calls > CALLS_GROWTH,
    }
    return [what for what, falls_short in found.items() if falls_short]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--workers", default=WORKERS)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--events", type=int, default=100_000, help="that are timed, of each run")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    counts = [int(count) for count in options.workers.split(",")]
    if options.one:
        print(json.dumps(one(options.one, counts[0], options.servers, options.events)))
        return 0
    failed: list[str] = []
    columns = f"{'scheme':8} {'workers':>8} {'events/s':>10} {'us/event':>9} {'growth':>7} {'MiB':>6}"
    print(f"{columns} {'turns':>6} {'calls':>6}")
    turns_per_s = []
    for scheme in options.schemes.split(","):
        rates: dict[int, float] = {}
        calls: dict[int, float] = {}
        for workers in counts:
            result = measured(scheme, workers, options)
            rate, mib = result["events_per_s"], result["mib"]
            rates[workers], calls[workers] = rate, result["calls"]
            turns_per_s.append(result["turns_per_s"])
            growth = rates.get(FROM, rate) / rate if workers >= FROM else 1.0
            more = calls[workers] / calls.get(FROM, calls[workers])
            failed += [f"{scheme}: {why}" for why in short_of(workers, rate, mib, growth, calls[workers], more)]
            figures = f"{rate:10,.0f} {1e6 / rate:9.2f} {growth:7.2f} {mib:6.0f} {result['turns']:6.1f}"
            print(f"{scheme:8} {workers:8,} {figures} {calls[workers]:6.1f}", flush=True)
    print(f"the loop: {statistics.median(turns_per_s) / 1e6:.1f} million turns a second")
    what = f"{EVENTS_PER_S:,} events/s in {MIB} MiB with {AT:,} workers, at most {GROWTH} times the cost of {FROM} with"
    what += f" {FAR:,}, {MANY:,} in {MANY_MIB:,} MiB, at most {CALLS_MAX} calls"
    print(f"{what}: {'DOES NOT HOLD: ' + '; '.join(failed) if failed else 'holds'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
