"""A key-value store over the live driver: what its servers hold, and what its workers call."""
