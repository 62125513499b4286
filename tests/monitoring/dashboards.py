"""Grafana's files of the panels: `python -m tests.monitoring.dashboards` writes deploy/dashboards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.monitoring.panels import DASHBOARDS, Dashboard, Panel

FOLDER = Path(__file__).parents[2] / "deploy/dashboards"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT, _NUMBER_HEIGHT = 24, 8, 4


def path_of(dashboard: Dashboard) -> Path:
    """Return where the file of a dashboard is."""
    return FOLDER / f"{dashboard.name}.json"


def text(dashboard: Dashboard) -> str:
    """Return the file of a dashboard."""
    document = {
        "title": dashboard.title,
        "uid": f"berth-{dashboard.name}",
        "tags": ["berth", "kueue"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables(dashboard))},
        "panels": list(_panels(dashboard)),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    for name, title, query in dashboard.variables:
        common = {
            "name": name,
            "type": "query",
            "label": title,
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
        }
        if name == "resource":
            yield {**common, "current": {"text": "nvidia.com/gpu", "value": "nvidia.com/gpu"}}
            continue
        everything = {"text": "All", "value": "$__all"}
        yield {**common, "includeAll": True, "multi": True, "allValue": ".*", "current": everything}


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for title, panels in dashboard.sections.items():
        yield {
            "id": (number := number + 1),
            "title": title,
            "type": "row",
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
            "panels": [],
        }
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y = 0, y + height
            height = _NUMBER_HEIGHT if panel.is_number else _HEIGHT
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            yield _panel(panel, number := number + 1, place)
            x += panel.width
        y += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "title": panel.title,
        "type": "stat" if panel.is_number else "timeseries",
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend}
            for at, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def main() -> None:
    """Write the files."""
    for dashboard in DASHBOARDS:
        path_of(dashboard).write_text(text(dashboard))


if __name__ == "__main__":
    main()
