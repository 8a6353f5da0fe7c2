"""What a run is made of, before there is any process: what all agree on, and what each process has to know.

Read `job_spec.py` first, then `process_spec.py`. Of `runtime/` it may import `kvstore/`.
"""
