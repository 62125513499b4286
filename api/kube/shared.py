"""One list and watch of a kind, shared by several listeners, which may be added later.

A second informer for the same kind would cost the API server a second watch, and this process a second
decoding and a second copy. For nodes and pods, which are numerous and change often, this is worth avoiding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from api.kube.client import KubeClient
from api.kube.errors import KubeError
from api.kube.informer import SLICE, Change, ChangeType, Informer, Listener, ListWatch, log_unreadable
from api.kube.listing import Key, KubeObject, Unreadable

T = TypeVar("T", bound=KubeObject)


class SharedInformer(Informer[T]):
    """An informer that reports changes to every listener, in the order in which they arrive.

    To each listener, an object is first reported as ADDED.
    """

    def __init__(
        self, client: KubeClient, what: ListWatch[T], *, on_error: Callable[[KubeError], None]
    ) -> None:
        all_listeners = Listener(
            on_change=self._on_change,
            on_unreadable=self._on_unreadable,
            on_unreadable_gone=self._on_unreadable_gone,
        )
        super().__init__(client, what, all_listeners, on_error=on_error)
        # For each listener the objects that existed before it was added and that it has not received yet.
        self._unreported: dict[Listener[T], dict[Key, None]] = {}

    def listen(self, listener: Listener[T]) -> None:
        """Report each change to the listener from now on, and each known object when it changes.

        For a listener that is added before the first list, and so has missed nothing.

        The listener must not be added twice.
        """
        self._unreported[listener] = dict.fromkeys(self.store)

    async def join(self, listener: Listener[T]) -> None:
        """Wait for the first list, report all known objects to the listener, and each change from then on.

        Works in slices, like a list, so that other tasks can run in between.

        Changes that arrive meanwhile are reported at once, and an object that is deleted before its turn is
        never reported.
        """
        await self.synced.wait()
        self.listen(listener)
        if listener.on_unreadable is not None:
            for unreadable in list(self.unreadable.values()):
                listener.on_unreadable(unreadable)
        unreported = self._unreported[listener]
        # Iterates over a copy, because changes between the slices remove objects from the dict.
        for count, key in enumerate(list(unreported), start=1):
            if key in unreported:
                del unreported[key]
                listener.on_change(Change(ChangeType.ADDED, self.store[key], None, self.raw.get(key)))
            if count % SLICE == 0:
                await asyncio.sleep(0)

    def _on_change(self, change: Change[T]) -> None:
        """Report a change to every listener, as ADDED to those that have not received the object yet."""
        key = change.object.metadata.namespace, change.object.metadata.name
        for listener, unreported in self._unreported.items():
            if key not in unreported:
                listener.on_change(change)
                continue
            del unreported[key]
            # If the listener has never received the object, it need not receive the deletion either.
            if change.type is not ChangeType.DELETED:
                listener.on_change(Change(ChangeType.ADDED, change.object, None, change.raw))

    def _on_unreadable(self, unreadable: Unreadable) -> None:
        """Report an object that cannot be decoded to every listener that wants to know, else log it."""
        reports = [one.on_unreadable for one in self._unreported if one.on_unreadable is not None]
        for report in reports:
            report(unreadable)
        if not reports:
            log_unreadable(self.resource, unreadable)

    def _on_unreadable_gone(self, key: Key) -> None:
        """Report that an unreadable object is readable again, or gone."""
        for listener in self._unreported:
            if listener.on_unreadable_gone is not None:
                listener.on_unreadable_gone(key)
