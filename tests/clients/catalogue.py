"""The clients, by their recipes in docs/clients.md: what was changed, and where one does not tell what went wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Case = Literal["one text", "100 texts", "empty text", "2,000 tokens", "wrong key", "overload"]
CASES: tuple[Case, ...] = ("one text", "100 texts", "empty text", "2,000 tokens", "wrong key", "overload")


@dataclass(frozen=True)
class Client:
    """One way to use a client."""

    recipe: str
    package: str
    changed: str = ""
    """What is not its default, besides the URL, the key, and a model's name where it insists on one."""
    retries: bool = False
    """It tries again by itself when the server is too busy."""
    silent: bool = False
    """For a list that is refused, it returns nothing in place of each vector, and raises nothing."""
    hides: Mapping[Case, str] = field(default_factory=dict)
    """What it shows instead of the server's message, in the cases where it does not show that."""


NOT_SHOWN: tuple[Case, ...] = ("empty text", "wrong key", "overload")
CHROMA_SHOWS = "ValueError: could not convert string to float: 'error'"

CLIENTS = (
    Client("openai", "openai", retries=True),
    Client("openai, asynchronous", "openai", retries=True),
    Client("openai, JavaScript", "openai", retries=True),
    Client("langchain-openai", "langchain-openai", "`check_embedding_ctx_length=False`", retries=True),
    Client("llama-index, OpenAI-like", "llama-index-embeddings-openai-like", retries=True),
    Client("haystack, OpenAI", "haystack-ai", retries=True, silent=True),
    Client("litellm, OpenAI", "litellm", retries=True),
    Client("chromadb, OpenAI", "chromadb", retries=True),
    Client("huggingface_hub", "huggingface_hub"),
    Client("@huggingface/inference", "@huggingface/inference"),
    Client(
        "tei-client",
        "tei-client",
        hides={
            "empty text": "KeyError: 0",
            "2,000 tokens": "KeyError: 0",
            "wrong key": "KeyError: 'model_type'",
            "overload": "KeyError: 0",
        },
    ),
    Client("langchain-huggingface", "langchain-huggingface", "its `client` is set, since it takes no URL"),
    Client(
        "llama-index, TEI",
        "llama-index-embeddings-text-embeddings-inference",
        hides=dict.fromkeys(NOT_SHOWN, "KeyError: 0"),
    ),
    Client("haystack, TEI", "huggingface-api-haystack"),
    Client("litellm, TEI", "litellm", '`input_type="embed"`'),
    Client("chromadb, TEI", "chromadb", hides=dict.fromkeys(NOT_SHOWN, CHROMA_SHOWS)),
    Client("ollama", "ollama"),
    Client("ollama, JavaScript", "ollama"),
    Client("chromadb, Ollama", "chromadb", "its key is in the environment: `OLLAMA_API_KEY`"),
)
