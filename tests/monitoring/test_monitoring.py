"""Alerts, recorded series and the dashboard speak of metrics that exist, and fire for what they are about."""

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
from tests.metrics import served_names

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/monitoring/rules.yaml"
CASES = Path(__file__).with_name("rules.yaml")
DASHBOARD = ROOT / "deploy/dashboards/berth.json"
# What Prometheus makes of a histogram.
_SUFFIX = re.compile(r"_(bucket|sum|count)$")


def groups(path: Path = RULES) -> list[dict[str, Any]]:
    """Return the groups of the rules."""
    return list(yaml.safe_load(path.read_text())["groups"])


def rules() -> list[dict[str, Any]]:
    """Return all rules."""
    return [rule for group in groups() for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard."""
    return list(json.loads(DASHBOARD.read_text())["panels"])


def panel_queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its queries, the variable set to a queue."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$queue", "gpu")


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


def test_prometheus_takes_the_queries_of_the_dashboard(tmp_path: Path) -> None:
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


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
