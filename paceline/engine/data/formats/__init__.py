"""Reads the files of other systems as data sets, and prepares pictures: size, normalisation, augmentation.

Each format has a file: `cifar.py`, `image_folder.py`, `caffe_lmdb.py`, `recordio.py`, `hdf5.py`; none unpickles
anything. Read `pictures.py` first, then `cifar.py`. Of `engine/` it may import `data/`.
"""
