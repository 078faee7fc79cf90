"""The tests. What torch reads from the environment is set here, before any of them imports it."""

from app.settings import set_library_defaults

set_library_defaults()
