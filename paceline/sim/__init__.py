"""The discrete-event driver: any scheme on any number of machines that need not exist, in virtual time.

driver     Simulation: carries out every effect        network    when a message arrives
heap       what happens next                           workload   what a worker's step gives and how long it takes
parties    who takes part, and what they wait for      memory     joining slices of numpy arrays or of nothing
"""

from paceline.sim.driver import Simulation
from paceline.sim.workload import Steps, Workload, plain_sgd

__all__ = ["Simulation", "Steps", "Workload", "plain_sgd"]
