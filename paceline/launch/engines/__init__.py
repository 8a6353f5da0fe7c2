"""Starting agents by what a cluster has: MPI, Slurm, Grid Engine, Kubernetes, YARN, Ray, torchrun. One file each.

Read `slurm.py` first; agents that cannot be given input call back (`callback_agents.py`). May import `launch/fake_ssh`.
"""
