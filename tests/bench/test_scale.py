"""bench.scale measures a full cluster, where each end admits a successor, and tells what is not linear."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import scale
from bench.curves import Curve, power, to_svg
from bench.restart import Started
from bench.scale import Figures, Point, growth, main, measure, not_linear

_SVG = "{http://www.w3.org/2000/svg}"


def figures(**values: float) -> Figures:
    flat = {"mb": 100.0, "intake_us": 30.0, "first_ms": 1.0, "decision_us": 500.0, "step_ms": 5.0}
    return Figures(admissions=10, **{**flat, **values})


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(Point(pending=60, nodes=20, queues=4), id="fewer queues than a cohort has"),
        pytest.param(Point(pending=60, nodes=23, queues=25), id="nodes and queues that do not divide evenly"),
    ],
)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="optional: needs the /proc of Linux")
def test_each_end_in_a_full_cluster_admits_one_successor(point: Point) -> None:
    assert measure(point, ends=5).admissions == 5


def test_the_power_of_a_curve_is_that_of_its_formula() -> None:
    assert power([(x, 7 * x**1.5) for x in (10, 100, 5000)]) == pytest.approx(1.5)


def test_a_decision_that_costs_more_in_a_larger_cluster_is_not_linear() -> None:
    points = [(size, figures(decision_us=500.0 * size / 100)) for size in (100, 1000, 10_000)]

    assert not_linear(growth(points)) == ["decision_us"]


def test_memory_in_proportion_to_the_cluster_is_linear() -> None:
    points = [(size, figures(mb=0.01 * size)) for size in (1000, 10_000, 100_000)]

    assert not_linear(growth(points)) == []


def test_the_picture_has_a_dot_with_its_figures_for_each_point() -> None:
    curve = Curve(title="MB & more", points=((1000, 44.0), (20_000, 92.0)))

    drawing = ElementTree.fromstring(to_svg([curve]))

    assert [one.text for one in drawing.iter(f"{_SVG}title")] == ["1,000: 44", "20,000: 92"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="optional: needs the /proc of Linux")
def test_json_has_the_size_and_the_figures_of_each_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "_QUICK_AXES", {"queues": (2, 4)})
    monkeypatch.setattr(scale, "_QUICK_POINT", Point(pending=40, nodes=20, queues=4))

    assert main(["--quick", "--axis", "queues", "-o", "json"]) == 0

    points = json.loads(capsys.readouterr().out)["queues"]["points"]
    assert [(one["pending"], one["nodes"], one["queues"]) for one in points] == [(40, 20, 2), (40, 20, 4)]
    assert all(one["mb"] > 0 for one in points)


@pytest.mark.parametrize(
    ("seconds", "mb", "is_over"),
    [
        pytest.param(19.9, 1500.0, False, id="within both targets"),
        pytest.param(20.1, 100.0, True, id="too late"),
        pytest.param(1.0, 1537.0, True, id="too large"),
    ],
)
def test_a_start_beyond_a_target_says_so(seconds: float, mb: float, is_over: bool) -> None:
    started = Started(name="restart", seconds=seconds, cpu_seconds=5.0, mb=mb)

    assert started.to_text().endswith(" over") is is_over
