"""Checkpoints, on disk or in Redis: files that are whole or absent, and a manifest that is
written last.

Read `folder_store.py` first, then `manifest.py`. May import `core/`.
"""
