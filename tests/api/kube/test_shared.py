"""One informer and several listeners: a late listener also receives every object once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from api.kube.client import KubeClient
from api.kube.errors import KubeError
from api.kube.informer import Change, Listener, ListWatch
from api.kube.resources import JOBS
from api.kube.shared import SharedInformer

from .scripted import PATIENCE_SECONDS, ScriptedServer, event, page, watch, widget
from .widgets import Widget


class Recorder:
    """The reports that one listener received, as words."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.unreadable: list[str] = []
        self.listener = Listener(
            on_change=self.take, on_unreadable=lambda found: self.unreadable.append(found.name)
        )

    def take(self, change: Change[Widget]) -> None:
        """Record a change."""
        self.words.append(f"{change.type} {change.object.metadata.name}")

    async def until(self, is_complete: Callable[[], bool]) -> None:
        """Return once it has received the wanted reports."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_complete():
                await asyncio.sleep(0)


@asynccontextmanager
async def shared(client: KubeClient, *listeners: Recorder) -> AsyncIterator[SharedInformer[Widget]]:
    """Run a shared informer with these listeners while the block lasts."""
    informer = SharedInformer(client, ListWatch(resource=JOBS, type_=Widget), on_error=_fail)
    for recorder in listeners:
        informer.listen(recorder.listener)
    task = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _fail(error: KubeError) -> None:
    raise AssertionError(str(error))


async def test_every_listener_receives_the_list_and_its_changes(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([widget("a", "1")]), watch(event("DELETED", widget("a", "11"))))
    one, other = Recorder(), Recorder()

    async with shared(client, one, other):
        await other.until(lambda: len(other.words) == 2)

    assert one.words == other.words == ["ADDED a", "DELETED a"]
    assert [request.query.get("watch") for request in scripted.requests] == [None, "true"]


async def test_a_late_listener_receives_all_that_is_known_without_another_list(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([widget("a", "1"), widget("b", "2"), {"metadata": {"name": "bad"}, "spec": 7}]))
    late = Recorder()

    async with shared(client) as informer:
        await informer.synced.wait()
        await informer.join(late.listener)

    assert late.words == ["ADDED a", "ADDED b"]
    assert late.unreadable == ["bad"]
    assert len([one for one in scripted.requests if "watch" not in one.query]) == 1


async def test_a_listener_that_joins_before_the_first_list_waits_for_it(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    scripted.will(page([widget("a", "1")]))
    early = Recorder()

    async with shared(client) as informer:
        await informer.join(early.listener)

    assert early.words == ["ADDED a"]


async def test_a_change_while_a_listener_catches_up_is_reported_once_and_begins_with_its_creation(
    scripted: ScriptedServer, client: KubeClient
) -> None:
    names = ("first", "changed", "deleted", "left")
    scripted.will(page([widget(name, "1") for name in names]))
    late = Recorder()

    async with shared(client) as informer:

        def change_meanwhile(change: Change[Widget]) -> None:
            late.take(change)
            if change.object.metadata.name == "first":
                # As the watch would report it between two slices.
                informer._take_event(event("MODIFIED", widget("changed", "11")))
                informer._take_event(event("DELETED", widget("deleted", "12")))

        await informer.join(Listener(on_change=change_meanwhile))

    assert late.words == ["ADDED first", "ADDED changed", "ADDED left"]
