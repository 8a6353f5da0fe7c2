"""The discrete-event driver: any scheme on any number of machines that need not exist, in virtual time.

Read `simulation.py` first: it carries out the effects of all roles. From the bottom up: cluster, kernel, checking,
faults, the files here, fuzzing. May import `core/` alone.
"""

from paceline.sim.cluster.model import Cluster, uniform
from paceline.sim.cluster.toml_file import examples, load
from paceline.sim.kernel.workload import LocalSteps, UniformSeconds, Workload, plain_sgd
from paceline.sim.simulation import Simulation

__all__ = [
    "Cluster",
    "LocalSteps",
    "Simulation",
    "UniformSeconds",
    "Workload",
    "examples",
    "load",
    "plain_sgd",
    "uniform",
]
