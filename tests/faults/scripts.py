"""The store's Lua scripts as functions on a dict, which answer what the real ones answer.

fakeredis interprets each script anew, at 3 ms a call, which was a third of a seed. What these functions do is
held to the real scripts by `test_scripts.py`: random calls of both, on fakeredis, answer alike and leave the
same values. Times to live are left out, since no run of the simulation lasts that long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from queues.store import lua

# By key: a text, a hash, or a stream, of which only the entries are kept.
Data = dict[bytes, Any]
Answer = list[bytes]
_Script = Callable[[Data, Sequence[bytes], Sequence[bytes]], Answer]

_HIGHEST_FENCE = 2_147_483_646
_HELD = re.compile(rb"^\d+ (\d+) (\S+)\n")
_VERSION = re.compile(rb"^(\d+) (\d+) (\d+)$")
_KINDS: dict[type, bytes] = {bytes: b"string", dict: b"hash", list: b"stream"}


def run_script(data: Data, name: str, arguments: Sequence[Any]) -> Answer:
    """Run the script of this name. `arguments`: how many keys, the keys, the other arguments."""
    count = int(arguments[0])
    given = [_to_bytes(one) for one in arguments[1:]]
    return _SCRIPTS[name](data, given[:count], given[count:])


def _to_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


# --- prelude.lua ---------------------------------------------------------------------------------------


def _wrong_type(data: Data, key: bytes, kind: type) -> Answer | None:
    found = data.get(key)
    if found is None or type(found) is kind:
        return None
    return [b"CORRUPT", key, b"a " + _KINDS[kind]]


def _fence_number(text: bytes) -> int | None:
    found = re.match(rb"(\d+) ", text + b" ")
    number = int(found[1]) if found is not None else None
    return number if number is not None and number <= _HIGHEST_FENCE else None


def _highest_fence(data: Data, key: bytes) -> tuple[bytes | None, Answer | None]:
    wrong = _wrong_type(data, key, bytes)
    if wrong is not None:
        return None, wrong
    highest = data.get(key)
    if highest is not None and _fence_number(highest) is None:
        return None, [b"CORRUPT", key, b"a whole number up to %d" % _HIGHEST_FENCE]
    return highest, None


def _turned_away(data: Data, key: bytes, fence: bytes) -> Answer | None:
    highest, wrong = _highest_fence(data, key)
    if wrong is not None:
        return wrong
    if highest is None:
        return [b"NOFENCE"]
    own, known = _fence_number(fence), _fence_number(highest)
    assert own is not None
    assert known is not None
    if own < known:
        return [b"FENCE", highest]
    if own > known:
        data[key] = fence
    return None


def _drop(data: Data, key: bytes, field: bytes) -> int:
    """Delete a field of a hash, and the hash with its last one; return how many fields that were."""
    fields = data.get(key, {})
    if field not in fields:
        return 0
    del fields[field]
    if not fields:
        del data[key]
    return 1


# --- the scripts, as their heads describe them ----------------------------------------------------------


def _commit(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    away = (
        _turned_away(data, keys[0], args[0])
        or _wrong_type(data, keys[1], dict)
        or _wrong_type(data, keys[2], bytes)
        or _wrong_type(data, keys[3], list)
    )
    if away is not None:
        return away
    if (known := data.get(keys[2])) is not None:
        return [b"DUP", known]
    count = int(args[4])
    held = data.get(keys[1], {})
    pairs = list(zip(args[5 : 5 + 2 * count : 2], args[6 : 6 + 2 * count : 2], strict=True))
    answers = [_answer_of(held.get(field, b""), args[1]) for field, _ in pairs]
    for (field, value), answer in zip(pairs, answers, strict=True):
        if not answer:
            data.setdefault(keys[1], {})[field] = value
    entries = args[5 + 2 * count :]
    for number, entry in zip(entries[::2], entries[1::2], strict=True):
        if number == b"0" or answers[int(number) - 1] in (b"", b"="):
            data.setdefault(keys[3], []).append(entry)
    data[keys[2]] = b"".join(answer + b"\n" for answer in answers)
    return [b"OK", data[keys[2]]]


def _answer_of(held: bytes, request: bytes) -> bytes:
    found = _HELD.match(held)
    if found is None:
        return b""
    return b"=" if found[2] == request else b"%b %b" % (found[1], found[2])


def _remove(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    away = _turned_away(data, keys[0], args[0]) or _wrong_type(data, keys[1], dict)
    if away is not None:
        return away
    return [b"OK", b"%d" % sum(_drop(data, keys[1], field) for field in args[1:])]


def _restore(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    away = _turned_away(data, keys[0], args[0]) or _wrong_type(data, keys[1], dict)
    if away is not None:
        return away
    data[keys[0]] = args[0]
    count = int(args[1])
    for field, value in zip(args[2 : 2 + 2 * count : 2], args[3 : 3 + 2 * count : 2], strict=True):
        data.setdefault(keys[1], {})[field] = value
    for field in args[2 + 2 * count :]:
        _drop(data, keys[1], field)
    return [b"OK"]


def _live(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    away = _turned_away(data, keys[0], args[0]) or _wrong_type(data, keys[1], dict)
    if away is not None:
        return away
    return [b"OK", *(part for pair in data.get(keys[1], {}).items() for part in pair)]


def _fence(data: Data, keys: Sequence[bytes], _: Sequence[bytes]) -> Answer:
    highest, wrong = _highest_fence(data, keys[0])
    if wrong is not None:
        return wrong
    return [b"NOFENCE"] if highest is None else [b"OK", highest]


def _seed(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    highest, wrong = _highest_fence(data, keys[0])
    if wrong is not None:
        return wrong
    if highest is not None and (_fence_number(highest) or 0) > (_fence_number(args[0]) or 0):
        return [b"FENCE", highest]
    data[keys[0]] = args[0]
    return [b"OK"]


def _life(data: Data, keys: Sequence[bytes], _: Sequence[bytes]) -> Answer:
    return _wrong_type(data, keys[0], bytes) or [b"OK", data.get(keys[0], b"")]


def _vouch(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    away = _turned_away(data, keys[0], args[0]) or _wrong_type(data, keys[1], bytes)
    if away is not None:
        return away
    data[keys[1]] = args[1]
    return [b"OK"]


def _decisions(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    wrong = _wrong_type(data, keys[0], list)
    return wrong or [b"OK", *data.get(keys[0], [])[::-1][: int(args[0])]]


def _plan_write(data: Data, keys: Sequence[bytes], args: Sequence[bytes]) -> Answer:
    away = _turned_away(data, keys[0], args[0])
    if away is not None:
        return away
    version = data.get(keys[1], b"")
    version = version if isinstance(version, bytes) else b""
    if version == args[2]:
        return [b"DUP"]
    if not args[1]:
        if _is_older(args[2], version):
            return [b"GAP"]
    elif version != args[1]:
        return [b"GAP"]
    elif wrong := next(filter(None, (_wrong_type(data, key, dict) for key in keys[2:])), None):
        return wrong
    at = 3
    for key in keys[2:]:
        if not args[1]:
            data.pop(key, None)
        puts, drops = int(args[at]), int(args[at + 1])
        at += 2
        for _ in range(puts):
            data.setdefault(key, {})[args[at]] = args[at + 1]
            at += 2
        for _ in range(drops):
            _drop(data, key, args[at])
            at += 1
    data[keys[1]] = args[2]
    return [b"OK"]


def _is_older(own: bytes, stored: bytes) -> bool:
    """Return whether a whole write is from before the stored one, of the same fence and schema."""
    mine, theirs = _VERSION.match(own), _VERSION.match(stored)
    # In Lua two texts that are no versions have equal parts, none, and are no numbers either.
    if mine is None or theirs is None:
        return False
    return mine.groups()[:2] == theirs.groups()[:2] and int(theirs[3]) > int(mine[3])


def _plan_read(data: Data, keys: Sequence[bytes], _: Sequence[bytes]) -> Answer:
    answer = [b"OK", _plan_version(data, keys[0])]
    for key in keys[1:]:
        if _wrong_type(data, key, dict):
            answer.append(b"-1")
        else:
            fields = data.get(key, {})
            answer += [b"%d" % len(fields), *(part for pair in fields.items() for part in pair)]
    return answer


def _plan_state(data: Data, keys: Sequence[bytes], _: Sequence[bytes]) -> Answer:
    sizes = (b"-1" if _wrong_type(data, key, dict) else b"%d" % len(data.get(key, ())) for key in keys[1:])
    return [b"OK", _plan_version(data, keys[0]), *sizes]


def _plan_version(data: Data, key: bytes) -> bytes:
    version = data.get(key, b"")
    return version if isinstance(version, bytes) else b""


_SCRIPTS: dict[str, _Script] = {
    lua.COMMIT.name: _commit,
    lua.REMOVE.name: _remove,
    lua.RESTORE.name: _restore,
    lua.LIVE.name: _live,
    lua.FENCE.name: _fence,
    lua.SEED.name: _seed,
    lua.LIFE.name: _life,
    lua.VOUCH.name: _vouch,
    lua.DECISIONS.name: _decisions,
    lua.PLAN_WRITE.name: _plan_write,
    lua.PLAN_READ.name: _plan_read,
    lua.PLAN_STATE.name: _plan_state,
}
