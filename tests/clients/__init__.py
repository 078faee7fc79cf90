"""Client libraries as they are published, against a real server; each runs in an environment of its own."""
