"""Keeps checkpoints, on disk or in Redis: files are whole or absent, and the manifest is written last.

Read `folder_store.py` first, then `manifest.py`. May import `core/`.
"""
