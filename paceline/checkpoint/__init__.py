"""Checkpoints on disk: files that are whole or absent, and a manifest, written last, that is the checkpoint."""
