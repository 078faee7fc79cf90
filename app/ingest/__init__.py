"""The command `embed`: a client of a running service, which turns a file of texts into a file of vectors."""
