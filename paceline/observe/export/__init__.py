"""Traces in the formats of other tools: one a file."""
