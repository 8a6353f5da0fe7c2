"""Makes one flat vector of a torch module: parameters, gradients as they arrive, and what is not trained.

Read `flat_model.py` first. Of `engine/` it may import `sparse/`, `vectors/` and the files beside the folders.
"""
