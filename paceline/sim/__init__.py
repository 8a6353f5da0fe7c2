"""The discrete-event driver: any scheme on any number of machines that need not exist, in virtual time.

cluster    hosts, devices, links, faults               clusterfile  reads them from TOML; ready examples
driver     Simulation: carries out the work of all     network    when a message arrives
talk       and what they say to one another            workload   what a worker's step gives and how long it takes
heap       what happens next                           memory     joining slices of numpy arrays or of nothing
parties    who takes part, and what they wait for
"""

from paceline.sim.cluster import Cluster, uniform
from paceline.sim.clusterfile import examples, load
from paceline.sim.driver import Simulation
from paceline.sim.workload import Steps, Workload, plain_sgd

__all__ = ["Cluster", "Simulation", "Steps", "Workload", "examples", "load", "plain_sgd", "uniform"]
