"""A torch module as one flat vector: parameters, gradients as they come, and what is not trained.

Read `flat_model.py` first. Of `engine/` it may import `sparse/`, `vectors/` and the files beside the folders.
"""
