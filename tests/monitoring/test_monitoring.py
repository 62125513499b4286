"""Alerts, recorded series and the dashboards name metrics that exist, and alerts fire as described."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import parts
from tests.integration.waiting import wait_for
from tests.metrics import served_names
from tests.monitoring import dashboards, pictures
from tests.monitoring.panels import DASHBOARDS, Dashboard
from tests.monitoring.scene import Prometheus, played

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/monitoring/rules.yaml"
CASES = Path(__file__).with_name("rules.yaml")
# What Prometheus makes of a histogram.
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def groups(path: Path = RULES) -> list[dict[str, Any]]:
    """Return the groups of the rules."""
    return list(yaml.safe_load(path.read_text())["groups"])


def rules() -> list[dict[str, Any]]:
    """Return all rules."""
    return [rule for group in groups() for rule in group["rules"]]


def panels(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Return the panels of a dashboard's file."""
    return list(json.loads(dashboards.path_of(dashboard).read_text())["panels"])


def panel_queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its queries, the variables set."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            for query in panel.queries.values():
                yield f"{dashboard.name}: {panel.title}", pictures.answered(query)


QUERIES = [*((rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()), *panel_queries()]


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_a_query_names_metrics_that_are_served(where: str, query: str) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    named = set(re.findall(r"\b(?:kueue|berth|ai|gang|topology|process)[_:]\w[\w:]*", query))

    assert named, f"{where} asks for nothing"
    assert {_SUFFIX.sub("", name) for name in named} - served_names() - recorded == set()


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    parts.need("promtool")
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


def test_prometheus_takes_the_rules() -> None:
    checked = promtool("check", "rules", str(RULES))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_takes_the_queries_of_the_dashboards(tmp_path: Path) -> None:
    named = [
        {"record": f"panel_{number}", "expr": query} for number, (_, query) in enumerate(panel_queries())
    ]
    path = tmp_path / "panels.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": named}]}))

    checked = promtool("check", "rules", str(path))

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_for_what_it_is_about_and_for_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(CASES.read_text().replace("- RULES", f"- {RULES}"))

    tested = promtool("test", "rules", str(path))

    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_rule_has_a_case_and_every_alert_one_where_it_does_not_fire() -> None:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    fires: set[str] = set()
    silent: set[str] = set()
    recorded: set[str] = set()
    for case in cases:
        recorded |= {one["expr"] for one in case.get("promql_expr_test", ())}
        for one in case.get("alert_rule_test", ()):
            (fires if one.get("exp_alerts") else silent).add(one["alertname"])
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}

    assert (alerts - fires, alerts - silent) == (set(), set())
    assert {rule["record"] for rule in rules() if "record" in rule} == recorded


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs/metrics.md").read_text()

    assert [rule["alert"] for rule in rules() if "alert" in rule and f"`{rule['alert']}`" not in page] == []


def test_the_rules_for_the_operator_are_the_same() -> None:
    wrapped = yaml.safe_load((RULES.parent / "prometheusrule.yaml").read_text())

    assert wrapped["spec"]["groups"] == groups()


def test_the_monitor_selects_the_controllers_service() -> None:
    monitor = yaml.safe_load((RULES.parent / "servicemonitor.yaml").read_text())
    documents = list(yaml.safe_load_all((ROOT / "deploy/controller.yaml").read_text()))
    (service,) = (one for one in documents if one["kind"] == "Service")

    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_the_panels_of_a_dashboard_do_not_overlap(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(dashboard):
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)
def test_a_dashboard_has_the_panels_that_it_was_written_from(dashboard: Dashboard) -> None:
    assert dashboards.path_of(dashboard).read_text() == dashboards.text(dashboard), (
        "run `python -m tests.monitoring.dashboards`"
    )


def test_every_dashboard_is_applied_with_the_label_of_grafanas_sidecar() -> None:
    folder = dashboards.FOLDER
    found = yaml.safe_load((folder / "kustomization.yaml").read_text())

    assert found["generatorOptions"]["labels"] == {"grafana_dashboard": "1"}
    named = {name for one in found["configMapGenerator"] for name in one["files"]}
    assert named == {path.name for path in folder.glob("*.json")}
    assert len(named) == len(DASHBOARDS)


@pytest.mark.parametrize(
    "metric",
    [
        "ai_scheduler_attempts_total",
        "gang_scheduling_wait_seconds",
        "topology_placement_decisions_total",
        "topology_scheduler_placement_duration_seconds",
        "topology_scheduler_latency_seconds",
        "topology_domain_utilization_ratio",
        "topology_gpu_allocation_ratio",
        "topology_scheduler_domain_fragmentation_ratio",
        "topology_scheduler_recovery_duration_seconds",
    ],
)
def test_the_articles_metrics_are_on_a_dashboard(metric: str) -> None:
    assert any(metric in query for _, query in panel_queries())


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Give a Prometheus that has scraped a controller with deploy/config.yaml through a busy minute."""
    parts.need("promtool")
    with played(tmp_path_factory.mktemp("scene")) as found:
        yield found


@pytest.mark.slow
def test_every_panel_shows_series_of_a_running_controller(scene: Prometheus) -> None:
    wait_for(lambda: not pictures.silent(scene), lambda: f"series of {pictures.silent(scene)}")

    for dashboard in DASHBOARDS:
        drawn = pictures.picture(dashboard, scene)
        assert drawn.count('class="panel"') == len(dashboard.panels)
