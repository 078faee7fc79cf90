"""The load test: drives an embedding service over HTTP with locust, and reports what it carries in time."""
