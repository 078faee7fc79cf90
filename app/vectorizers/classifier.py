"""ClassifierVectorizer: the callable that owns a cross-encoder and its device."""

from collections.abc import Sequence

from app.errors import WrongModel
from app.vectorizers.base import Matrix, TextInput, require_finite
from app.vectorizers.choosing import choose_forward, load_finite
from app.vectorizers.dtypes import choose_dtype
from app.vectorizers.engine import Engine
from app.vectorizers.forward import Forward
from app.vectorizers.loaded_classifier import LoadedClassifier
from app.vectorizers.sources import ModelSource
from app.vectorizers.tokenizer import TokenIds


class ClassifierVectorizer(Engine):
    """Turns texts and pairs of texts into logits as `CrossEncoder.predict` does before its activation, in batches that
    fit the device."""

    kind = "classification"

    def _load(self, source: ModelSource, dtype: str) -> tuple[LoadedClassifier, Forward]:
        chosen = choose_dtype(dtype, self._device, source)
        loaded, expected = load_finite(
            lambda one: LoadedClassifier(source, self._device, one), chosen, may_widen=dtype == "auto"
        )
        return loaded, choose_forward(loaded, expected)

    def tokenize(self, inputs: Sequence[TextInput]) -> list[TokenIds]:
        """Where an input brings no prompt, the model's default one is put before its text, as CrossEncoder does."""
        if self._default_prompt:
            inputs = [
                one._replace(prompt=one.prompt or self._default_prompt) if isinstance(one.content, str) else one
                for one in inputs
            ]
        return super().tokenize(inputs)

    def __call__(self, inputs: Sequence[str] | Sequence[TokenIds], *, normalize: bool | None = None) -> Matrix:
        """Logits, float32 of shape (n, labels), whatever `normalize` says. More than the token budget runs in parts,
        each within it or one text."""
        return require_finite(self._rows(inputs))

    def token_vectors(self, encodings: Sequence[TokenIds]) -> list[Matrix]:
        """Raises WrongModel."""
        raise WrongModel("The model that is served classifies texts; it gives no vectors.")
