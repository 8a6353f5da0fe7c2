"""A torch module as one flat vector: parameters, gradients as they come, and what is not trained.

Read `flat_model.py` first. May import `engine/vectors`, `engine/sparse/sparse_vector` and `core/`.
"""
