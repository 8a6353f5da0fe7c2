"""Checkpoints of a run: what each process contributes, who writes it, where a run is taken up again.

Read `writer.py` first, then `resume.py`. Of `runtime/` it may import `run_folder/` and `worker/steps/`.
"""
