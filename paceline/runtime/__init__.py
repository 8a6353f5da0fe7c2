"""What each process of a run does: the live driver put together with the engine.

Read `process_main.py` first, then `worker/pace.py` and `supervisor/supervisor.py`. From the bottom up: spec, kvstore,
run_folder, worker/steps, checkpointing, collectives, server, worker, evaluator, supervisor. May import `config/` and
everything below it.
"""
