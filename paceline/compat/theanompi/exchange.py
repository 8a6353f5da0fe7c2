"""What the sync types and exchange strategies of Theano-MPI's BSP are here: a scheme, a carrier of means and a codec.

Its strategies carry each parameter alone; here all parameters are one vector. Where the library is another one, the
schedule is the nearest: `asa` sends every piece to the worker that sums it and back, which is `pairwise`; `copper` is a
binary reduction between pairs, which is `butterfly`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

SYNC_TYPES = {"cdd": "bsp", "avg": "localsgd"}
"""BSP_SYNC_TYPE and the scheme: `cdd` averages the updates, `avg` the weights after every step."""
SWAP = "swap"
HALF = "fp16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Says how means travel: `carrier` for --allreduce, `codec` of what workers send."""

    carrier: str
    codec: str = "none"


STRATEGIES = {
    "nccl32": Exchange(carrier="nccl"),
    "nccl16": Exchange(carrier="pairwise", codec=HALF),
    "ar": Exchange(carrier="auto"),
    "asa32": Exchange(carrier="pairwise"),
    "asa16": Exchange(carrier="pairwise", codec=HALF),
    "copper": Exchange(carrier="butterfly"),
    "copper16": Exchange(carrier="butterfly", codec=HALF),
}


def scheme_of(sync_type: str) -> str:
    """Returns the scheme of a sync type. Raises ConfigError for one that is none, or that is not here."""
    if sync_type == SWAP:
        raise ConfigError(
            "BSP_SYNC_TYPE=swap exchanges whole models of random pairs, which ended in an error in Theano-MPI too: "
            "GOSGD mixes models of random pairs, and BSP_SYNC_TYPE=avg averages all"
        )
    if sync_type not in SYNC_TYPES:
        raise ConfigError(f"BSP_SYNC_TYPE={sync_type}: must be cdd or avg{nearest(sync_type, SYNC_TYPES)}")
    return SYNC_TYPES[sync_type]


def exchange_of(strategy: str, devices: Sequence[str]) -> tuple[Exchange, str]:
    """Returns what a strategy is among workers on these devices, and a line that says so. Raises ConfigError."""
    if strategy not in STRATEGIES:
        raise ConfigError(f"BSP_EXCH_STRATEGY={strategy}: must be one of {', '.join(STRATEGIES)}")
    found = STRATEGIES[strategy]
    if found.carrier == "nccl" and not all(device.startswith("cuda") for device in devices):
        found = Exchange(carrier="auto", codec=found.codec)
    codec = f" --codec {found.codec}" if found.codec != "none" else ""
    return found, f"{strategy} is --allreduce {found.carrier}{codec}"
