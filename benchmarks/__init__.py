"""Measurements, each runnable by itself: ratios alternated in one run, never lone absolute times."""
