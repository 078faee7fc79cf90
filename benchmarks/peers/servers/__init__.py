"""Servers of the peers' frames; each file runs by itself, in its peer's environment."""
