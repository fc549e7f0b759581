"""Metrics, alerts, and the dashboard, in a real Prometheus with a real `spotgate serve`."""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from prometheus_client import generate_latest

from tests.monitoring.prometheus import TIMEOUT_SECONDS, program, running
from tests.monitoring.tables import (
    OPERATE,
    OPERATOR_RULES,
    ROOT,
    RULES,
    TESTED_RULES,
    alerts,
    full_registry,
    operator_rules,
    rules_without_annotations,
)
from tests.server.conftest import spawn  # noqa: F401 - a fixture
from tests.server.harness import eventually, labelled, review, write_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.monitoring.prometheus import Prometheus
    from tests.server.harness import Process

BOARD: Final = json.loads((ROOT / "manifests" / "monitoring" / "board.json").read_text())
RULES_TESTS: Final = sorted(Path(__file__).parent.glob("rules_*test.yaml"))

PANELS: Final = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]

_MACROS: Final = {"$__range": "1m", "$__rate_interval": "10s", "$cluster": ".*", "$namespace": ".*"}

_NOT_HERE: Final = {"spotgate_shed_total", "spotgate_rejected_total"}
"""Metrics without samples here; the dashboard's queries then show 0."""

# From an API server of Kubernetes 1.36.
API_SERVER: Final = """\
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="node-pools.spotgate.dev",operation="DELETE",rejection_code="0",type="validating"} %(n)d
apiserver_admission_webhook_fail_open_count{name="workloads.spotgate.dev",type="validating"} %(n)d
apiserver_admission_webhook_admission_duration_seconds_bucket{name="workloads.spotgate.dev",operation="CREATE",rejected="false",type="validating",le="1"} %(n)d
apiserver_admission_webhook_admission_duration_seconds_bucket{name="workloads.spotgate.dev",operation="CREATE",rejected="false",type="validating",le="+Inf"} %(n)d0
apiserver_admission_webhook_admission_duration_seconds_sum{name="workloads.spotgate.dev",operation="CREATE",rejected="false",type="validating"} %(n)d
apiserver_admission_webhook_admission_duration_seconds_count{name="workloads.spotgate.dev",operation="CREATE",rejected="false",type="validating"} %(n)d0
"""


class Metrics(http.server.BaseHTTPRequestHandler):
    """Metrics of a failing API server and of a replica on a live cluster; counters grow with each scrape."""

    scrapes = 0

    def do_GET(self) -> None:
        """Answer a scrape."""
        Metrics.scrapes += 1
        body = generate_latest(full_registry()) + (API_SERVER % {"n": Metrics.scrapes}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@pytest.fixture
def others() -> Iterator[int]:
    """Serve the metrics that `spotgate serve` on loopback lacks; return the port."""
    with http.server.HTTPServer(("127.0.0.1", 0), Metrics) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def grafana_query(expression: str) -> str:
    """Return a query in the form that Grafana sends."""
    for macro, value in _MACROS.items():
        expression = expression.replace(macro, value)
    return expression


def test_prometheus_scrapes_a_replica_and_every_query_returns_data(
    spawn: Callable[..., Process],  # noqa: F811
    others: int,
    tmp_path: Path,
) -> None:
    program("prometheus")
    write_policy(tmp_path / "policies")
    trial = (tmp_path / "policies" / "policy.yaml").read_text().replace("reserved", "trial").replace("deny", "audit", 1)
    (tmp_path / "policies" / "trial.yaml").write_text(trial)
    served = spawn()
    with running(tmp_path, RULES, {"spotgate": served.ops_port, "others": others}) as prometheus:
        eventually(lambda: bool(prometheus.query('spotgate_ready{job="spotgate"}')))
        for domain in ("reserved.example.com", "trial.example.com"):
            served.post(labelled(domain))
        served.post(review())
        assert b"reserved-labels/reserved" in served.ops("/metrics").body
        denied = 'increase(spotgate_decisions_total{job="spotgate",phase="validate"}[10s])'
        eventually(lambda: bool(prometheus.query(denied)))
        eventually(lambda: "pending" in {alert["state"] for alert in alerts_of(prometheus)})
        _queries_are_right(prometheus)


def _queries_are_right(prometheus: Prometheus) -> None:
    for rule in alerts_of(prometheus):
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]
    assert len(alerts_of(prometheus)) == len(alerts())
    empty = [title for title, expression in PANELS if not prometheus.query(grafana_query(expression))]
    assert empty == []
    samples = {title: prometheus.query(grafana_query(expression)) for title, expression in PANELS}
    assert _row("reserved") in [sample["metric"] for sample in samples["Denials by policy, finding, and namespace"]]
    assert _row("trial") not in [sample["metric"] for sample in samples["Denials that mode deny would add"]]
    by_outcome = {sample["metric"]["outcome"] for sample in samples["Outcomes"]}
    assert by_outcome >= {"denied", "allowed"}
    known = set(prometheus.get("label/__name__/values"))
    asked_for = {
        name
        for _, expression in [*PANELS, *((alert["alert"], alert["expr"]) for alert in alerts())]
        for name in re.findall(r"(?:spotgate|apiserver)_[a-z_]+", expression)
        if not name.endswith("_")
    }
    assert asked_for - known - _NOT_HERE == set()


def _row(policy: str) -> dict[str, str]:
    return {"policy": policy, "id": "reserved-labels/reserved", "resource_namespace": "team-a"}


def alerts_of(prometheus: Prometheus) -> list[dict[str, Any]]:
    """Return the alerts as Prometheus evaluates them."""
    return [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]


def test_each_alert_fires_on_time() -> None:
    tests = "".join(file.read_text() for file in RULES_TESTS)
    assert {alert["alert"] for alert in alerts()} == set(re.findall(r"alertname: (\w+)\n +exp_alerts", tests))
    for arguments in (
        ("check", "rules", "--lint=all", "--lint-fatal", str(RULES)),
        ("test", "rules", *map(str, RULES_TESTS)),
    ):
        done = subprocess.run(
            [program("promtool"), *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_tests_the_shipped_rules() -> None:
    (named,) = {name for file in RULES_TESTS for name in yaml.safe_load(file.read_text())["rule_files"]}
    assert (Path(__file__).parent / named).read_text() == rules_without_annotations()


def test_every_dashboard_query_filters_by_cluster_and_namespace() -> None:
    assert {variable["name"] for variable in BOARD["templating"]["list"]} == {"datasource", "cluster", "namespace"}
    chosen = re.compile(r'cluster=~"\$cluster"(, namespace=~"\$namespace")?')
    for title, expression in PANELS:
        selectors = re.findall(r"((?:spotgate|apiserver)_[a-z_]+)(\{[^}]*\})?", expression.partition("__name__")[0])
        for metric, selector in selectors:
            assert (asks := chosen.search(selector)), (title, metric)
            assert bool(asks[1]) == metric.startswith("spotgate_"), (title, metric)
        assert "__name__" not in expression or chosen.search(expression)


def test_metrics_follow_the_naming_rules_of_prometheus() -> None:
    done = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=generate_latest(full_registry()),
        capture_output=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_has_severity_duration_description_and_runbook(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert alert["for"]
    anchor = alert["annotations"]["runbook_url"].partition("docs/operate.md#")[2]
    headings = {text.lower().replace(" ", "-") for text in re.findall(r"^## (.*)$", OPERATE.read_text(), re.MULTILINE)}
    assert anchor in headings
    above = RULES.read_text().partition(f"      - alert: {alert['alert']}\n")[0].splitlines()[-1]
    assert above.startswith("      # "), "say where the thresholds come from"


def test_every_panel_has_a_unique_title_and_a_description() -> None:
    assert len({panel["title"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert [panel["title"] for panel in BOARD["panels"] if not panel["description"]] == []
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_copies_of_the_alerts_are_current() -> None:
    assert TESTED_RULES.read_text() == rules_without_annotations(), "run `make golden`"
    assert OPERATOR_RULES.read_text() == operator_rules(), "run `make golden`"


def test_the_operator_scrapes_a_port_of_the_pods() -> None:
    """tests/controlplane/install/test_install_page.py installs the objects."""
    monitors = yaml.safe_load_all((ROOT / "manifests" / "components" / "monitoring" / "podmonitor.yaml").read_text())
    components = ("on-demand-floor", "reclaim-notice")
    files = ("base/deployment.yaml", *(f"components/{name}/deployment.yaml" for name in components))
    deployments = (next(yaml.safe_load_all((ROOT / "manifests" / file).read_text())) for file in files)
    for monitor, deployment in zip(monitors, deployments, strict=True):
        monitored, template = monitor["spec"], deployment["spec"]["template"]
        assert monitored["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
        assert {endpoint["port"] for endpoint in monitored["podMetricsEndpoints"]} <= ports
