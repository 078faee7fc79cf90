"""The doctor: what this machine and this model are, where the time of one call goes, and what would help."""
