"""The report's three charts: GPUs over time, waits of Jobs, and promises against starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from admission.simulation.course import JobCourse
from admission.simulation.figures import PROMISE_SLACK_SECONDS, is_broken, span_of
from admission.simulation.report.series import (
    Waits,
    furthest_from_promise,
    gpus_over_time,
)
from admission.simulation.report.svg import (
    WIDTH,
    TimeScale,
    WaitScale,
    area,
    bar,
    chart,
    duration_text,
    element,
    label,
    line,
    shortened,
    text_width,
    titled,
)

Courses = Mapping[str, Sequence[JobCourse]]
# How many Jobs a reader can look at one by one; the page says that there are more.
MOST_PROMISES = 60
_BINS = 240
_PANEL_HEIGHT = 64.0
_ROW_HEIGHT = 14.0
_LONGEST_NAME = 28


def usage_chart(courses: Courses, *, gpus: int) -> str:
    """Return one panel per policy: the mean GPUs held, and those with work that was kept, of all `gpus`.

    The panels share their scales, so that they can be compared.
    """
    end = max(_end_of(one) for one in courses.values())
    scale = TimeScale(begin=0, end=end, left=text_width((*courses, f"{gpus:,} GPUs")) + 60)
    height = len(courses) * (_PANEL_HEIGHT + 14) + 8
    panels = [
        _usage_panel(name, courses[name], scale=scale, top=number * (_PANEL_HEIGHT + 14) + 14, gpus=gpus)
        for number, name in enumerate(courses)
    ]
    last_submit = scale.at(max(span_of(one)[1] for one in courses.values()))
    mark = titled("last submit", line((last_submit, 0), (last_submit, height), kind="now"))
    # Put the label to the left of the line if there is no space on its right.
    offset, anchor = (-5.0, "end") if last_submit > WIDTH - 100 else (5.0, "start")
    words = label(last_submit + offset, 9, "last submit", kind="over", anchor=anchor)
    about = "GPUs held and usefully busy over time, a panel a policy"
    return chart(scale.axis(0, height), *panels, mark, words, height=height + 22, about=about)


def _usage_panel(name: str, courses: Sequence[JobCourse], *, scale: TimeScale, top: float, gpus: int) -> str:
    bottom = top + _PANEL_HEIGHT
    held = gpus_over_time(((one.job.gpus, one.held) for one in courses), end=scale.end, bins=_BINS)
    useful = gpus_over_time(((one.job.gpus, one.useful) for one in courses), end=scale.end, bins=_BINS)
    # Never more than all GPUs are held; the bound only guards against rounding.
    shapes = [
        area(_outline([min(1.0, value / max(1, gpus)) for value in values], scale, top, bottom), kind=kind)
        for values, kind in ((held, "held"), (useful, "useful"))
    ]
    ends = ((top + 9, f"{gpus:,} GPUs"), (bottom, "0"))
    texts = label(0, top + _PANEL_HEIGHT / 2 + 4, name, kind="name") + "".join(
        label(scale.left - 6, y, text, anchor="end") for y, text in ends
    )
    return element("g", texts, *shapes, line((scale.left, bottom), (scale.right, bottom), kind="base"))


def _outline(
    shares: Sequence[float], scale: TimeScale, top: float, bottom: float
) -> list[tuple[float, float]]:
    """Return the step outline of the shares, closed along the bottom."""
    width = (scale.right - scale.left) / len(shares)
    points = [(scale.left, bottom)]
    for number, share in enumerate(shares):
        y = bottom - share * (bottom - top)
        points += [(scale.left + number * width, y), (scale.left + (number + 1) * width, y)]
    return [*points, (scale.right, bottom)]


def waits_chart(waits: Mapping[str, Mapping[str, Waits]], *, about: str) -> str:
    """Return rows of policies under each group: P50 as a dot, a bar to P90, a line to P99.

    `waits` are by policy and group; every policy has the same groups, as all run the same Jobs.
    """
    groups = list(next(iter(waits.values())))
    every = [one for of_policy in waits.values() for one in of_policy.values()]
    # Ignore waits below a second, which would extend the scale over an empty range.
    shortest = min((one.p50 for one in every if one.p50 >= 1), default=1.0)
    longest = max(one.p99 for one in every)
    scale = WaitScale(shortest=shortest, longest=longest, left=text_width(waits) + 30)
    block = (len(waits) + 1) * _ROW_HEIGHT + 8
    rows = [
        _group_rows(group, {name: waits[name][group] for name in waits}, scale=scale, top=number * block)
        for number, group in enumerate(groups)
    ]
    height = len(groups) * block
    return chart(scale.axis(0, height), *rows, height=height + 22, about=about)


def _group_rows(group: str, waits: Mapping[str, Waits], *, scale: WaitScale, top: float) -> str:
    jobs = next(iter(waits.values())).jobs
    title = f"{shortened(group, 60)} ({jobs:,} {'Job' if jobs == 1 else 'Jobs'})"
    head = label(0, top + _ROW_HEIGHT, title, kind="name")
    rows = [
        _wait_row(name, one, scale=scale, y=top + (number + 1.7) * _ROW_HEIGHT)
        for number, (name, one) in enumerate(waits.items())
    ]
    return element("g", head, *rows)


def _wait_row(name: str, waits: Waits, *, scale: WaitScale, y: float) -> str:
    p50, p90, p99 = scale.at(waits.p50), scale.at(waits.p90), scale.at(waits.p99)
    p50_text, p90_text, p99_text = (duration_text(one) for one in (waits.p50, waits.p90, waits.p99))
    title = f"{name}: P50 {p50_text}, P90 {p90_text}, P99 {p99_text}"
    return titled(
        title,
        label(12, y + 4, name),
        line((p90, y), (p99, y), kind="tail"),
        bar(p50, y - 3, width=p90 - p50, height=6, kind="held"),
        element("circle", cx=p50, cy=y, r=4, class_="useful"),
    )


def promises_chart(courses: Sequence[JobCourse], *, policy: str) -> str:
    """Return one row per Job: its wait as a line, the first promise as a tick, and its run as a bar.

    It shows at most MOST_PROMISES Jobs, those with the largest difference from their promise.
    """
    shown = furthest_from_promise(courses, MOST_PROMISES)
    names = [shortened(f"{one.job.id} {one.job.tenant}", _LONGEST_NAME) for one in shown]
    scale = TimeScale(begin=span_of(shown)[0], end=_end_of(shown), left=text_width(names) + 16)
    height = len(shown) * _ROW_HEIGHT + 4
    rows = [
        _promise_row(one, name, scale=scale, y=(number + 0.5) * _ROW_HEIGHT)
        for number, (one, name) in enumerate(zip(shown, names, strict=True))
    ]
    about = f"first promises against starts under {policy}"
    return chart(scale.axis(0, height), *rows, height=height + 22, about=about)


def _promise_row(course: JobCourse, name: str, *, scale: TimeScale, y: float) -> str:
    assert course.promised_at is not None
    assert course.first_start_at is not None
    assert course.finished_at is not None
    submitted, start, end = (
        scale.at(at) for at in (course.job.submitted_at, course.first_start_at, course.finished_at)
    )
    # A promise in the far future is drawn at the edge; the title has the exact time.
    promise = min(WIDTH, scale.at(course.promised_at))
    title = (
        f"Job {course.job.id} of {course.job.tenant}, {course.job.gpus} GPUs: submitted after"
        f" {duration_text(course.job.submitted_at)}, promised for {duration_text(course.promised_at)},"
        f" started {_lateness_text(course.first_start_at - course.promised_at)}"
    )
    return titled(
        title,
        label(0, y + 4, name),
        line((submitted, y), (start, y), kind="tail"),
        bar(start, y - 4, width=end - start, height=8, kind="broken" if is_broken(course) else "held"),
        line((promise, y - 6), (promise, y + 6), kind="promise"),
    )


def _lateness_text(seconds: float) -> str:
    if abs(seconds) <= PROMISE_SLACK_SECONDS:
        return "as promised"
    return f"{duration_text(abs(seconds))} {'later' if seconds > 0 else 'sooner'}"


def _end_of(courses: Sequence[JobCourse]) -> float:
    return max(course.finished_at or 0.0 for course in courses)
