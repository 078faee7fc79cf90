"""The cache of recent vectors: what it keeps, and what it never mixes up."""

import numpy as np
import pytest

from app.vector_cache import BYTES_PER_MB, VectorCache
from app.vectorizers.base import Matrix, TextInput

VECTOR: Matrix = np.arange(4, dtype=np.float32)


def test_a_vector_comes_back_for_the_same_text_with_the_same_options_alone() -> None:
    cache = VectorCache(1)
    one = TextInput("x", prompt="Q: ", cut_left=True, truncate=True, normalize=True)
    cache.put(one, VECTOR, truncated=True, tokens=3)
    found = cache.get(one._replace())
    assert found is not None
    assert found.truncated
    np.testing.assert_array_equal(found.vector, VECTOR)
    for other in (
        one._replace(content="y"),
        one._replace(prompt=""),
        one._replace(cut_left=False),
        one._replace(normalize=False),
    ):
        assert cache.get(other) is None


def test_it_keeps_a_copy_and_not_the_whole_batch() -> None:
    cache, batch = VectorCache(1), np.zeros((100, 4), dtype=np.float32)
    cache.put(TextInput("x"), batch[3], truncated=False, tokens=3)
    batch[:] = 7
    found = cache.get(TextInput("x"))
    assert found is not None
    assert found.vector.base is None
    assert not found.vector.any()


def test_the_bound_of_bytes_holds_and_the_least_recently_used_go_first() -> None:
    cache = VectorCache(0.01)
    for i in range(100):
        cache.put(TextInput(f"text {i}"), VECTOR, truncated=False, tokens=3)
        cache.get(TextInput("text 0"))
        assert cache.n_bytes <= 0.01 * BYTES_PER_MB
    assert cache.get(TextInput("text 0")) is not None
    assert cache.get(TextInput("text 99")) is not None
    assert cache.get(TextInput("text 50")) is None


def test_an_entry_larger_than_the_cache_is_not_kept() -> None:
    cache = VectorCache(0.01)
    cache.put(TextInput("x" * 20_000), VECTOR, truncated=False, tokens=3)
    assert cache.n_bytes == 0


def test_token_ids_are_not_kept() -> None:
    cache = VectorCache(1)
    cache.put(TextInput([1, 2]), VECTOR, truncated=False, tokens=3)
    assert cache.get(TextInput([1, 2])) is None


@pytest.mark.parametrize("length", [10, 10_000])
def test_what_an_entry_is_said_to_take_is_about_what_it_takes(length: int) -> None:
    import tracemalloc

    cache, vector = VectorCache(100), np.zeros(384, dtype=np.float32)
    cache.put(TextInput("warm up"), vector, truncated=False, tokens=3)
    tracemalloc.start()
    before, said = tracemalloc.get_traced_memory()[0], cache.n_bytes
    for i in range(1000):
        cache.put(TextInput(f"{i:0{length}}"), vector, truncated=False, tokens=3)
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert cache.n_bytes - said == pytest.approx(took, rel=0.15)
