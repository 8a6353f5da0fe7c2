"""Contains all that touches torch arithmetic: vectors, models, optimizers, data.

Read `vectors/flat.py` first, then `model/flat_model.py` and `optim/optimizers.py`. May import `core/`.
"""
