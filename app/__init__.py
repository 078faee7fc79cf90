"""Convoy: single-text requests in, full batches through one callable vectorizer, each caller's own row out."""

__version__ = "0.1.0"
