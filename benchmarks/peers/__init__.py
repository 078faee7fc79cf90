"""Convoy beside other servers: the same model, texts and machine, driven in turns.

usage: python -m benchmarks.peers --help
"""
