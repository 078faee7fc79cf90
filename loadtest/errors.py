"""Why a load test ends without a report."""


class LoadTestFailed(Exception):
    """The load test cannot be believed or cannot go on; the message says why, in a sentence for the terminal."""
