"""A network and data of the user's own, which an import path names.

Read `own_model.py` first. Of `engine/` it may import `data/`, `model/` and the files beside the folders.
"""
