"""The vectorizers: for embedding models, for classifiers, a simulated one, and the only place that chooses."""

from typing import Any

from app.settings import Settings
from app.vectorizers.base import Vectorizer
from app.vectorizers.fake import PREFIX, FakeLaw, FakeVectorizer
from app.vectorizers.sources import find_model


def load_vectorizer(settings: Settings) -> Vectorizer[Any]:
    """Load the model that the settings name, on the calling thread; this takes as long as loading takes.

    Raises StartFailed with a sentence that says what to change.
    """
    if settings.model.startswith(PREFIX):
        return FakeVectorizer(
            FakeLaw.parse(settings.model),
            name=settings.served_model_name or "fake",
            max_batch_tokens=settings.max_batch_tokens,
            max_batch_items=settings.max_batch_items,
            workers=settings.workers,
        )
    source = find_model(settings.model, settings.revision)
    # torch takes seconds to import; a wrong path is told before
    from app.vectorizers.classifier import ClassifierVectorizer
    from app.vectorizers.kinds import is_classifier
    from app.vectorizers.text import TextVectorizer

    kind = ClassifierVectorizer if is_classifier(source) else TextVectorizer
    return kind(
        source,
        name=settings.served_model_name or source.name,
        device=settings.device,
        dtype=settings.dtype,
        workers=settings.workers,
        warmup=settings.warmup,
        max_batch_tokens=settings.max_batch_tokens,
        max_batch_items=settings.max_batch_items if settings.batching else 1,
        cuda_visible_devices=settings.cuda_visible_devices,
    )
