"""Reads the files of other systems as data sets, and prepares pictures: size, normalisation, augmentation.

Read `pictures.py` first. Each of the other files reads one format. Of `engine/` it may import `data/`.
"""
