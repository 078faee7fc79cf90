"""Measurements, each runnable by itself: ratios alternated in one run, never lone absolute times.

What torch reads from the environment is set here, as in the service, before any of them imports it.
"""

from app.settings import set_library_defaults

set_library_defaults()
