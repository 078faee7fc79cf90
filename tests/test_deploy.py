"""What is shipped for Prometheus and Grafana: checked by their own tools, and by a real Prometheus."""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Serve
from tests.server import ROOT, RunningServer, free_port

RULES = ROOT / "deploy" / "prometheus"
BOARD = ROOT / "deploy" / "grafana" / "dashboards" / "convoy.json"
FAKE = "fake://?dim=8&base_ms=1&item_ms=0"
NAME = re.compile(r"\b(?:convoy|process|python)_[a-z_]+")
SERIES = re.compile(rf"^{NAME.pattern}(?=[ {{])", re.MULTILINE)
"""A name at the start of a line of `/metrics`: only those are series, not what comments say."""
ONLY_ON_CUDA = {"convoy_device_memory_bytes", "convoy_device_utilisation_ratio"}
"""There only where there are cards."""

with_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="Prometheus and promtool (Debian's package `prometheus`) are not installed",
)


def promtool(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["promtool", *arguments], cwd=RULES, input=text, capture_output=True, text=True, timeout=60)


@with_prometheus
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts.test.yml"),
    ],
    ids=["config", "rules", "tests of the rules"],
)
def test_what_prometheus_reads_passes_its_own_checks(arguments: tuple[str, ...]) -> None:
    done = promtool(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr


@with_prometheus
def test_the_metrics_pass_prometheus_own_checks(serve: Serve) -> None:
    server = serve("--model", FAKE)
    server.embed_all("a", ["b", "c"])
    done = promtool("check", "metrics", text=httpx.get(server.url + "/metrics").text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def panels() -> list[dict[str, Any]]:
    """The dashboard's queries, each with its `expr` and `legendFormat`."""
    return [target for panel in json.loads(BOARD.read_text())["panels"] for target in panel.get("targets", ())]


def test_alerts_and_dashboard_name_only_metrics_that_are_there(fake_server: RunningServer) -> None:
    there = set(SERIES.findall(httpx.get(fake_server.url + "/metrics").text)) | ONLY_ON_CUDA
    alerts = re.sub(r"(?s)annotations:.*?(?=- alert|\Z)", "", (RULES / "alerts.yml").read_text())
    variables = [variable["query"] for variable in json.loads(BOARD.read_text())["templating"]["list"]]
    for text in (alerts, *variables, *[panel["expr"] for panel in panels()]):
        used = set(NAME.findall(text))
        assert used, text
        assert used <= there, f"{sorted(used - there)} in {text}"


def configure(folder: Path, target: str, key: str | None) -> None:
    """The shipped configuration, but for where the service is."""
    config = (RULES / "prometheus.yml").read_text()
    config, places = re.subn(
        r"dns_sd_configs:(?:\n      .*)+?(?=\n    #)", f"static_configs:\n      - targets: [{target!r}]", config
    )
    assert places == 1
    if key is not None:
        config, lines = re.subn(r"# (authorization:|  credentials_file: )", r"\1", config)
        assert lines == 2
        (folder / "api_key").write_text(key)
    (folder / "prometheus.yml").write_text(config.replace("scrape_interval: 5s", "scrape_interval: 250ms"))
    shutil.copy(RULES / "alerts.yml", folder)


@contextmanager
def prometheus(folder: Path, target: str, key: str | None = None) -> Iterator[httpx.Client]:
    """A real Prometheus that scrapes this service, with its key where it has one."""
    configure(folder, target, key)
    port = free_port()
    process = subprocess.Popen(
        [
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def until(client: httpx.Client, query: str, value: float) -> None:
    """Wait until a query has this one value."""
    found: Any = None
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            found = client.get("/api/v1/query", params={"query": query}).json()["data"]["result"]
        except (httpx.TransportError, KeyError, ValueError):
            found = "no answer yet"
        else:
            if [float(one["value"][1]) for one in found] == [value]:
                return
        time.sleep(0.1)
    raise AssertionError(f"{query} did not become {value}: {found}")


@with_prometheus
def test_prometheus_scrapes_the_service_and_counts_what_it_counted(serve: Serve, tmp_path: Path) -> None:
    server = serve("--model", FAKE)
    server.embed_all(*[f"text {i}" for i in range(7)], ["a", "b", "c"])
    with prometheus(tmp_path, f"127.0.0.1:{server.port}") as client:
        until(client, 'convoy_requests_total{job="convoy",route="/embed",status="200"}', 8)
        until(client, 'sum(convoy_items_total{job="convoy",outcome="answered"})', 10)
        until(client, 'convoy_batch_items_sum{job="convoy"}', 10)
        until(client, 'up{job="convoy"}', 1)
        groups = client.get("/api/v1/rules").json()["data"]["groups"]
        assert len(groups[0]["rules"]) == 5
        assert all(rule["health"] != "err" for rule in groups[0]["rules"])
        server.stop()
        until(client, 'count(ALERTS{alertname="ConvoyNotReady"})', 1)


@with_prometheus
def test_every_query_of_the_dashboard_finds_series_with_the_labels_it_shows(serve: Serve, tmp_path: Path) -> None:
    server = serve("--model", FAKE)
    server.embed_all("a", ["b", "c"])
    with prometheus(tmp_path, f"127.0.0.1:{server.port}") as client:
        until(client, "count_over_time(convoy_ready[1m]) >= bool 2", 1)
        for panel in panels():
            if ONLY_ON_CUDA.isdisjoint(NAME.findall(panel["expr"])):
                query = re.sub(r"\$(instance|route)", ".*", panel["expr"]).replace("$__rate_interval", "1m")
                found = client.get("/api/v1/query", params={"query": query}).json()["data"]["result"]
                assert found, query
                assert set(re.findall(r"{{(\w+)}}", panel["legendFormat"])) <= set(found[0]["metric"]), query


@with_prometheus
def test_prometheus_shows_its_key_where_metrics_are_protected(serve: Serve, tmp_path: Path) -> None:
    server = serve("--model", FAKE, "--protect-metrics", "on", env={"CONVOY_API_KEY": "let me see"})
    with prometheus(tmp_path, f"127.0.0.1:{server.port}", "let me see") as client:
        until(client, 'up{job="convoy"}', 1)
