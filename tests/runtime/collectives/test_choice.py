"""Who carries means follows from the settings and the cluster."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.config import build
from paceline.core.coordination.control_messages import Hello, Ready
from paceline.engine.specs import OptimizerRecipe
from paceline.runtime.collectives.choice import choose_allreduce, meets_for_means
from paceline.runtime.spec.job_spec import Recipe

MEASURED = (1e-4, 1e-9, 0.0, 0.0)


def chosen(
    scheme: str,
    mean: str,
    workers: int,
    servers: int,
    device: str = "cpu",
    links: tuple[float, ...] = MEASURED,
    secured: bool = False,
) -> tuple[str, str]:
    recipe = Recipe(scheme=scheme, parameters={}, optimizer=OptimizerRecipe(name="sgd", lr=0.1))
    ready = [
        Ready(length=25_000_000, fingerprint="", seconds_per_step=0.0, optimizer=recipe.to_json(), peers=links)
        for _ in range(workers)
    ]
    hellos = [Hello(address="", pid=1, host="here", device=device.format(rank=rank)) for rank in range(workers)]
    choice = choose_allreduce(ready, hellos, servers, wanted=mean, secured=secured)
    return choice.name, choice.reason.split(" MB")[0]


@pytest.mark.parametrize(
    ("asked", "taken", "said"),
    [
        (("bsp", "auto", 2, 0), "pairwise", "means by pairwise: 100"),
        (("localsgd", "auto", 2, 1), "pairwise", "means by pairwise: 100"),
        (("bsp", "blocks", 3, 0), "blocks", "means by blocks, as --allreduce says"),
        (("bsp", "gloo", 3, 0), "gloo", "means by gloo, as --allreduce says"),
        (("bsp", "auto", 2, 1), "servers", ""),  # pushes and pulls, and no means
        (("bsp", "ring", 2, 1), "servers", ""),
        (("bsp", "auto", 1, 0), "ring", ""),
        (("localsgd", "auto", 100, 1), "servers", ""),
        (("bsp", "auto", 2, 0, "cuda:{rank}"), "nccl", "means by nccl: every worker has a GPU of its own"),
        (("bsp", "auto", 2, 0, "cpu", (1.0,)), "pairwise", "means by pairwise: 100"),
    ],
)
def test_who_carries_means_follows_from_what_is_asked_for_and_what_there_is(
    asked: tuple[str, str, int, int], taken: str, said: str
) -> None:
    assert chosen(*asked) == (taken, said)


def test_what_is_in_the_clear_is_not_taken_unasked_where_there_is_tls() -> None:
    unasked = chosen("bsp", "auto", 2, 0, "cuda:{rank}", secured=True)
    asked = chosen("bsp", "nccl", 2, 0, "cuda:{rank}", secured=True)
    assert [unasked[0], asked[0]] == ["pairwise", "nccl"]


def test_workers_are_connected_where_they_may_carry_means_and_nowhere_else() -> None:
    def meets(scheme: str, mean: str, servers: int, workers: int) -> bool:
        return meets_for_means(mean, build({"run": {"scheme": scheme}}).scheme(), servers, workers)

    assert [meets("bsp", "auto", 0, 4), meets("localsgd", "auto", 1, 4), meets("localsgd", "ring", 1, 100)] == [
        True
    ] * 3
    assert [meets("asp", "auto", 1, 4), meets("bsp", "gloo", 0, 4), meets("localsgd", "auto", 1, 100)] == [False] * 3


def test_who_reads_a_configuration_does_not_load_torch_for_it() -> None:
    """Such as a coordinator in a process of its own: that would be silent for seconds."""
    read = "import sys; from paceline.config import build; "
    read += "build({'run': {'scheme': 'bsp'}, 'cluster': {'allreduce': 'gloo', 'servers': 0}}); "
    read += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
