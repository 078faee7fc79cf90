"""The requests of text-embeddings-inference's protocol: their forms and their validation."""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from app.api.inputs import Inputs, Texts, TokenId, Truncation, is_one
from app.api.serving import Asked
from app.embedder import EmbedOptions
from app.scorer import Pair, ScoreOptions


class _Request(BaseModel):
    model_config = ConfigDict(strict=True)


class EmbedAllRequest(Truncation):
    """What to embed, token by token."""

    tagged: ClassVar = ("inputs",)

    inputs: Inputs = Field(description="A text, a list of texts, or token ids of the model's own vocabulary.")
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")

    def asked(self) -> Asked:
        """The same in the embedder's terms."""
        one = is_one(self.inputs)
        options = EmbedOptions(truncate=self.truncate, cut_left=self.cut_left, prompt_name=self.prompt_name)
        contents: Any = [self.inputs] if one else self.inputs
        return Asked("inputs", contents, one, options)


class SimilarityInputs(_Request):
    """One sentence, and those it is compared with."""

    source_sentence: str = Field(min_length=1)
    sentences: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)


class SimilarityParameters(Truncation):
    """How the sentences are embedded."""

    prompt_name: str | None = None


class SimilarityRequest(_Request):
    """What to compare."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None

    def asked(self) -> Asked:
        """Source and sentences in one request, so that they share batches."""
        parameters = self.parameters or SimilarityParameters()
        options = EmbedOptions(
            truncate=parameters.truncate,
            cut_left=parameters.cut_left,
            prompt_name=parameters.prompt_name,
        )
        contents = [self.inputs.source_sentence, *self.inputs.sentences]
        return Asked("inputs", contents, False, options)


class TokenizeRequest(_Request):
    """What to tokenize."""

    tagged: ClassVar = ("inputs",)

    inputs: Texts = Field(description="A text, or a list of texts.")
    add_special_tokens: bool | None = Field(True, description="With the special tokens that the model wants.")
    prompt_name: str | None = Field(None, description="One of the model's prompts, put before each text.")


def _ids_kind(ids: Any) -> str:
    return "id_lists" if isinstance(ids, list) and ids and isinstance(ids[0], list) else "ids"


class DecodeRequest(_Request):
    """Token ids whose text is wanted."""

    tagged: ClassVar = ("ids",)

    ids: Annotated[
        Annotated[list[TokenId], Field(fail_fast=True), Tag("ids")]
        | Annotated[list[Annotated[list[TokenId], Field(fail_fast=True)]], Field(fail_fast=True), Tag("id_lists")],
        Discriminator(_ids_kind),
    ] = Field(description="Token ids of the model's vocabulary: one list, or a list of lists.")
    skip_special_tokens: bool | None = Field(True, description="Leave special tokens out.")


def _predict_kind(inputs: Any) -> str:
    if not isinstance(inputs, list):
        return "text"
    return "pair" if inputs and isinstance(inputs[0], str) else "batch"


class PredictRequest(Truncation):
    """What to classify."""

    tagged: ClassVar = ("inputs",)

    inputs: Annotated[
        Annotated[str, Tag("text")]
        | Annotated[list[str], Field(min_length=2, max_length=2), Tag("pair")]
        | Annotated[list[Annotated[list[str], Field(min_length=1, max_length=2)]], Field(min_length=1), Tag("batch")],
        Discriminator(_predict_kind),
    ] = Field(description="A text, a pair of texts, or a list of lists that each hold a text or a pair.")
    raw_scores: bool | None = Field(False, description="Logits instead of probabilities.")

    def pairs(self) -> list[Pair]:
        """What to score, one entry an input."""
        batch: list[list[str]]
        if isinstance(self.inputs, str):
            batch = [[self.inputs]]
        elif isinstance(self.inputs[0], str):
            batch = [self.inputs]
        else:
            batch = self.inputs
        return [(one[0], one[1] if len(one) > 1 else None) for one in batch]

    @property
    def one(self) -> bool:
        return isinstance(self.inputs, str) or isinstance(self.inputs[0], str)


class RerankRequest(Truncation):
    """A query, and the texts to order by how well they answer it."""

    query: str = Field(min_length=1)
    texts: list[str] = Field(min_length=1)
    raw_scores: bool | None = Field(False, description="Logits instead of probabilities.")
    return_text: bool | None = Field(False, description="Repeat each text in the answer.")


def options_of(request: Truncation) -> ScoreOptions:
    """The same in the scorer's terms."""
    return ScoreOptions(truncate=request.truncate, cut_left=request.cut_left)
