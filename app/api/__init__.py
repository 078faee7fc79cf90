"""The edge: protocols, status codes and encodings, and nothing of batching or models."""
