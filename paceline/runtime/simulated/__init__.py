"""A run in virtual time: the scheme, the model and the data are real, the machines and the clock are not.

Read `simulated_run.py` first, then `setup.py` and `workload.py`. Of `runtime/` it may import `evaluator/`,
`run_folder/`, `spec/`, `worker/`, `worker/loop/` and `worker/steps/`.
"""
