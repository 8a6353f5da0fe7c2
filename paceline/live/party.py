"""The parties of a run, under the address that this package uses; `paceline.core.coordination.party` defines them."""

from paceline.core.coordination.party import COORDINATOR, EVALUATOR, KINDS, Party, server, worker

__all__ = ["COORDINATOR", "EVALUATOR", "KINDS", "Party", "server", "worker"]
