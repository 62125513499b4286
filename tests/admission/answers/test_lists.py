"""Lists of one state: what one page has computed serves the next, and changes none."""

from __future__ import annotations

from admission.answers import lists
from admission.answers.items import Kind
from admission.answers.lists import Lists
from admission.answers.selection import Selection
from admission.answers.sight import EVERYTHING, Sight
from tests.admission.controller.queries.asking import Asked


def test_pages_of_one_state_are_those_of_a_new_one() -> None:
    engine = Asked().known.cluster_state.engine
    kept = Lists(engine)
    kept.prepare()
    # One selection more than are kept, each twice and seen by two callers.
    of_names = [{"name": f"a,{number}"} for number in range(lists._MOST_KEPT)]
    asked = [
        (Selection(filters=filters, sort=sort), sight)
        for filters in ({}, {"status": "pending"}, {"namespace": "bob"}, *of_names)
        for sort in ("position", "-name", "position")
        for sight in (EVERYTHING, Sight(namespaces=frozenset({"ada"})))
    ]

    found = [kept.page(Kind.WORKLOADS, sight, selection) for selection, sight in asked]

    assert found == [Lists(engine).page(Kind.WORKLOADS, sight, selection) for selection, sight in asked]
    assert len({tuple(one.name for one in page.items) for page in found}) > 3
