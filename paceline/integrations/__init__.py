"""Makes loops that belong to a framework workers of a run: Lightning, Fabric, Accelerate, the Trainer of
transformers, Keras, skorch, timm.

Each module needs its framework and is imported by its name, for example `paceline.integrations.lightning`.
Read `worker_loader.py` first. May import `launch/` and everything below it.
"""
