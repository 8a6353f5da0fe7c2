"""Starting agents by what a cluster has: MPI, Slurm, Grid Engine, Kubernetes, YARN, Ray, torchrun. One file each.

Read `slurm.py` first; agents that cannot be given input call back (`callback_agents.py`). Of `launch/` it may import
`external/`, `local/` and `remote/`.
"""
