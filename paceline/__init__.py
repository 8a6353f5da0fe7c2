"""Paceline trains one PyTorch model on machines that are not alike, under any published synchronisation scheme."""

__version__ = "0.1.0"
