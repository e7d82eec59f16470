"""Prometheus metrics of NVIDIA GPUs that stay right when a GPU or a driver misbehaves."""

__version__ = "0.1.0"
