"""Settings: flags, environment, and what is refused at start."""

from pathlib import Path

import pytest

from app.errors import StartFailed
from app.settings import Settings, read_settings


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_MAX_BATCH_ITEMS", "7")
    monkeypatch.setenv("CONVOY_BATCHING", "off")
    assert read_settings([]).max_batch_items == 7
    assert read_settings([]).batching is False
    assert read_settings(["--max-batch-items", "9"]).max_batch_items == 9


def test_every_option_has_a_sentence_of_help() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith((".", "device.")), name


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--port", "x"], "--port 'x'"),
        (["--port", "70000"], "less than or equal to 65535"),
        (["--device", "tpu"], "must be auto, cpu, cuda, cuda:N or mps"),
        (["--dtype", "int8"], "--dtype"),
        (["--max-inputs", "10000"], "--max-queue-items 8192"),
        (["--revision", "main"], "--revision goes with a hub id"),
        (["--batching", "off", "--max-wait-ms", "5"], "--max-wait-ms has nothing to wait for"),
        (["--max-wait-ms", "500", "--request-timeout-ms", "400"], "make the wait shorter"),
        (["--device", "cuda:1", "--workers", "2"], "use --device cuda"),
        (["--api-key", "a", "--api-key-file", "b"], "keep one of them"),
        (["--protect-metrics", "on"], "needs --api-key"),
        (["--api-key", "two\nlines"], "one line of visible characters"),
        (["--model", ""], "--model"),
        (["--device", "cuda:٣"], "must be auto"),
        (["--request-timeout-ms", "9" * 400], "--request-timeout-ms"),
        (["--api-key", ""], "--api-key: is empty; leave it out"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence_that_says_what_to_change(flags: list[str], says: str) -> None:
    with pytest.raises(StartFailed) as refused:
        read_settings(flags)
    assert says in str(refused.value)


def test_settings_cannot_be_changed_after_start() -> None:
    settings = read_settings([])
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1  # type: ignore[misc]


def test_the_key_may_come_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("s3cret\n")
    settings = read_settings(["--api-key-file", str(file)])
    assert settings.key() == "s3cret"
    assert "s3cret" not in repr(read_settings(["--api-key", "s3cret"]))
    assert "api_key" not in settings.public()


def test_an_empty_or_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="cannot be read"):
        read_settings(["--api-key-file", str(tmp_path / "none")]).key()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(StartFailed, match="is empty"):
        read_settings(["--api-key-file", str(tmp_path / "empty")]).key()
    (tmp_path / "two").write_text("a\nb\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, says in (("two", "one line"), ("binary", "cannot be read")):
        with pytest.raises(StartFailed, match=says):
            read_settings(["--api-key-file", str(tmp_path / name)]).key()


def test_an_empty_key_in_the_environment_does_not_silently_mean_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_API_KEY", "")
    with pytest.raises(StartFailed, match="is empty"):
        read_settings([])


def test_the_variable_that_kubernetes_sets_for_a_service_of_this_name_is_no_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONVOY_PORT", "tcp://10.0.0.7:8000")
    assert read_settings([]).port == 8000
