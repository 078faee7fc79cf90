"""Settings: every option of the service, declared once; the only reader of environment and flags."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, CliSuppress, SettingsConfigDict, SettingsError

from app.errors import StartFailed

FAKE = "fake://"


def _known_device(device: str) -> str:
    name, colon, number = device.partition(":")
    if device not in ("auto", "cpu", "cuda", "mps") and not (
        name == "cuda" and colon and number.isascii() and number.isdigit()
    ):
        raise ValueError("must be auto, cpu, cuda, cuda:N or mps")
    return device


class Settings(BaseSettings):
    """Options of `python -m app serve`: each is a flag, and an environment variable `CONVOY_…`; the flag wins."""

    model_config = SettingsConfigDict(
        env_prefix="CONVOY_",
        frozen=True,
        extra="ignore",
        cli_prog_name="python -m app serve",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    model: str = Field(
        "bundled",
        min_length=1,
        description="What to serve: `bundled` (all-MiniLM-L6-v2, installed with Convoy), a folder, a hub id, or a "
        "simulated device `fake://?dim=384&base_ms=5&item_ms=0.2&token_ms=0`.",
    )
    revision: str | None = Field(None, description="Branch, tag or commit of a hub id.")
    served_model_name: str | None = Field(
        None, description="The name shown in `/info` and metrics; the model's own by default."
    )
    device: Annotated[str, AfterValidator(_known_device)] = Field(
        "auto", description="`auto` (a GPU where there is one), `cpu`, `cuda`, `cuda:N` or `mps`."
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto",
        description="Number type of the weights; `auto` is the model's better half type on CUDA, bfloat16 on a CPU "
        "that gains by it, else float32.",
    )
    workers: int = Field(
        0, ge=0, le=64, description="How many run the model side by side: GPUs, each with a copy of it, or threads "
        "that share the cores of a CPU; 0 takes all visible GPUs, or on a CPU what carries most at warm-up.",
    )  # fmt: skip
    warmup: Literal["full", "quick", "off"] = Field(
        "full", description="How long a start measures the model: `full` some seconds, `quick` about two, `off` not at "
        "all, with a fixed token budget and one worker.",
    )  # fmt: skip
    host: str = Field("127.0.0.1", description="Address to listen on; `0.0.0.0` for every interface.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    batching: bool = Field(True, description="`off` runs one forward for each input, as a baseline to compare with.")
    max_batch_tokens: int = Field(
        0, ge=0, description="Most tokens in one batch; 0 takes the smallest batch within 5% of the best throughput, "
        "as measured at warm-up, and at least 512.",
    )  # fmt: skip
    max_batch_items: int = Field(512, ge=1, description="Most inputs in one batch.")
    max_wait_ms: float = Field(
        0, ge=0, le=60_000, description="How long an incomplete batch waits for more, counted from its oldest input; 0 "
        "dispatches as soon as the device is free.",
    )  # fmt: skip
    interactive_inputs: int = Field(
        4, ge=0, description="Requests of up to so many inputs take the interactive lane, longer lists the bulk lane, "
        "unless their header `X-Lane` says otherwise.",
    )  # fmt: skip
    bulk_share: float = Field(
        0.1, ge=0, le=1, description="Part of the tokens that the bulk lane gets however much is interactive."
    )
    target_batch_ms: float = Field(
        0, ge=0, le=60_000, description="No batch is to take longer while interactive requests come; 0 takes the time "
        "in which a batch reaches 90% of the best throughput (95% on a CPU), as measured at warm-up and since.",
    )  # fmt: skip
    max_queue_items: int = Field(8192, ge=1, description="Most inputs that wait; more are refused with 429.")
    max_queue_tokens: int = Field(
        4_194_304, ge=1, description="Most tokens that wait, as estimated until they are counted; more are refused "
        "with 429.",
    )  # fmt: skip
    max_inputs: int = Field(2048, ge=1, description="Most inputs in one request.")
    max_body_bytes: int = Field(10_485_760, ge=1024, description="Largest request body, in bytes.")
    compress_min_bytes: int = Field(
        32_768, ge=0, description="Smallest answer, in bytes, that is compressed for clients that take zstd or gzip; 0 "
        "compresses none.",
    )  # fmt: skip
    truncate: bool = Field(
        True, description="Cut inputs longer than the model reads (`off`: refuse them); a request may say otherwise."
    )
    default_prompt_name: str | None = Field(
        None, description="Which of the model's prompts is put before inputs where a request names none; by default "
        "the model's own choice.",
    )  # fmt: skip
    unknown_model: Literal["accept", "refuse"] = Field(
        "accept", description="What to do with a request that names another model than the one served: answer, saying "
        "which model it was, or refuse with 404.",
    )  # fmt: skip
    openai_token_ids: Literal["refuse", "model"] = Field(
        "refuse", description="What lists of integers mean in OpenAI's `input`: `refuse` them, since most clients send "
        "ids of OpenAI's own tokenizer, or take them as this `model`'s own.",
    )  # fmt: skip
    request_timeout_ms: int = Field(
        30_000,
        ge=1,
        le=86_400_000,
        description="How long a request may take once it is read, before it is answered with 504; its header "
        "`X-Request-Timeout-Ms` may ask for less.",
    )
    drain_timeout_s: float = Field(
        30, ge=0, description="How long a stopping service may take to finish what it accepted."
    )
    api_key: SecretStr | None = Field(None, description="Clients must send `Authorization: Bearer <key>`.")
    api_key_file: Path | None = Field(None, description="File with the key, as an alternative to `--api-key`.")
    protect_metrics: bool = Field(False, description="Ask for the key on `/metrics` too.")
    watchdog_s: float = Field(
        60, ge=0, description="How long the model may be silent over one batch before it counts as dead; 0 for ever."
    )
    cache_mb: float = Field(
        0, ge=0, description="Memory for recent vectors, in MB: a text that comes again is answered from there; 0 "
        "keeps none.",
    )  # fmt: skip
    exit_on_dead_worker: bool = Field(
        True, description="End the process, with an error, when the model can no longer be run; `off`: stay, unready."
    )
    slow_request_ms: float = Field(
        1000, ge=0, description="A request that takes longer is logged as a warning, with its bill; 0 for none."
    )
    dashboard: bool = Field(True, description="Serve the dashboard at `/`.")
    tracing: bool = Field(
        False, description="Send OpenTelemetry spans to where `OTEL_EXPORTER_OTLP_ENDPOINT` says; needs the extra "
        "`otel`.",
    )  # fmt: skip
    log_format: Literal["text", "json"] = Field("text", description="`text` for people, `json` for machines.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severity that is logged."
    )
    cuda_visible_devices: CliSuppress[str | None] = Field(
        None,
        validation_alias="CUDA_VISIBLE_DEVICES",
        description="As CUDA reads it; used to explain which card is which.",
    )
    cuda_device_order: CliSuppress[str | None] = Field(
        None, validation_alias="CUDA_DEVICE_ORDER", description="As CUDA reads it; used for the same."
    )

    @field_validator("port", mode="before")
    @classmethod
    def _not_a_service_link(cls, value: Any) -> Any:
        """Kubernetes sets CONVOY_PORT=tcp://… for a Service called convoy; that is no port of ours."""
        return 8000 if isinstance(value, str) and value.startswith("tcp://") else value

    @field_validator("api_key", mode="after")
    @classmethod
    def _not_empty(cls, key: SecretStr | None) -> SecretStr | None:
        """An empty key is a variable that was not set; serving without one unasked would be worse than not starting."""
        if key is not None and not key.get_secret_value().strip():
            raise ValueError("is empty; leave it out to serve without a key")
        if key is not None and not key.get_secret_value().strip().isprintable():
            raise ValueError("must be one line of visible characters, since it travels in a header")
        return key

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.api_key is not None and self.api_key_file is not None:
            raise ValueError("--api-key and --api-key-file are both set; keep one of them.")
        if self.revision is not None and (self.model == "bundled" or self.model.startswith(FAKE)):
            raise ValueError(
                f"--revision goes with a hub id; take it away, or name one with --model (now {self.model})."
            )
        if not self.batching and self.max_wait_ms:
            raise ValueError("--max-wait-ms has nothing to wait for with --batching off; set it to 0.")
        if self.max_wait_ms >= self.request_timeout_ms:
            raise ValueError(
                f"--max-wait-ms {self.max_wait_ms:g} would use up --request-timeout-ms {self.request_timeout_ms}; "
                "make the wait shorter."
            )
        if self.max_inputs > self.max_queue_items:
            raise ValueError(
                f"--max-inputs {self.max_inputs} is more than --max-queue-items {self.max_queue_items}: the longest "
                "lists could never be accepted; lower the first or raise the second."
            )
        if self.workers > 1 and self.device.startswith("cuda:"):
            raise ValueError(f"--workers {self.workers} takes one card each; use --device cuda, not {self.device}.")
        if self.protect_metrics and self.api_key is None and self.api_key_file is None:
            raise ValueError("--protect-metrics needs --api-key or --api-key-file.")
        return self

    def key(self) -> str | None:
        """The API key, from its option or its file; raises StartFailed where the file holds none."""
        if self.api_key_file is None:
            return self.api_key.get_secret_value().strip() if self.api_key is not None else None
        try:
            key = self.api_key_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StartFailed(f"--api-key-file {self.api_key_file} cannot be read: {error}.") from error
        if not key:
            raise StartFailed(f"--api-key-file {self.api_key_file} is empty.")
        if not key.isprintable():
            raise StartFailed(
                f"--api-key-file {self.api_key_file} must hold one key, in one line of visible characters."
            )
        return key

    @property
    def takes_openai_ids(self) -> bool:
        """Whether lists of integers in OpenAI's protocol are this model's own token ids."""
        return self.openai_token_ids == "model"  # noqa: S105  # no secret

    def public(self) -> dict[str, Any]:
        """The effective values for `/info`, without secrets."""
        untold = {"api_key", "api_key_file", "cuda_visible_devices", "cuda_device_order"}
        return self.model_dump(mode="json", exclude=untold)


LIBRARY_DEFAULTS = {
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin while they wait make each other wait, where cores are shared
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",  # batches of ever new sizes must not splinter a card's memory
    "KINETO_LOG_LEVEL": "6",  # torch's profiler says at its highest level that it starts and stops, at each turn
}
"""What the libraries under torch read from the environment when they are loaded, unless it is set already."""


def set_library_defaults() -> None:
    """Must run before torch is imported."""
    for name, value in LIBRARY_DEFAULTS.items():
        os.environ.setdefault(name, value)


def key_in_environment() -> str | None:
    """The API key that a client sends, where the environment has one."""
    return os.environ.get("CONVOY_API_KEY") or None


def read_settings(arguments: list[str], program: str | None = None) -> Settings:
    """Read flags and environment; raises StartFailed with a line for each problem. `--help` exits, and so does a flag
    that there is not, with the usage of `program`, by default that of `serve`."""
    try:
        return Settings(_cli_parse_args=arguments, _cli_prog_name=program)
    except ValidationError as error:
        raise StartFailed("\n".join(_sentence(problem) for problem in error.errors())) from None
    except SettingsError as error:
        raise StartFailed(str(error)) from None


def _sentence(problem: Any) -> str:
    message = str(problem["msg"]).removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    flag = "--" + str(problem["loc"][0]).replace("_", "-")
    value = "" if flag == "--api-key" else f" {problem['input']!r}"
    return f"{flag}{value}: {message}."
