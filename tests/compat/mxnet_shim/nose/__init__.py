"""As much of nose as MXNet's tests use."""
