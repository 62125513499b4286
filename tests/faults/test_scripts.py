"""The model of the scripts answers as the Lua scripts do, and leaves the same values."""

from __future__ import annotations

import random
from typing import Any

import fakeredis
import pytest

from queues.store import lua
from tests.faults.scripts import Data, run_script

# "foreign" holds what Berth did not write, of another type in each run.
_FENCE, _HELD, _PLAN, _LIFE, _LOG, _ROWS, _FOREIGN = "fence", "held", "plan", "life", "log", "rows", "foreign"
_TEXTS = ("f1", "f2", "f3")
_CALLS = 120


def _held(chance: random.Random) -> str:
    return chance.choice((f"1 {chance.randint(1, 3)} r{chance.randint(1, 3)}\nwrite", "unreadable"))


def _version(chance: random.Random) -> str:
    return f"1 {chance.randint(1, 2)} {chance.randint(1, 4)}"


def _key(chance: random.Random, name: str) -> str:
    return _FOREIGN if chance.random() < 0.03 else name


def _texts(chance: random.Random) -> list[str]:
    return chance.choices(_TEXTS, k=chance.randint(0, 3))


def _call(chance: random.Random, fence: str) -> tuple[lua.Script, list[str], list[Any]]:
    """Draw a call: the script, its keys, and its other arguments."""
    held = _key(chance, _HELD)
    keys = [_key(chance, _FENCE)]
    pairs = [part for field in _texts(chance) for part in (field, _held(chance))]
    rows = [_key(chance, _ROWS), _key(chance, "more rows")]
    match chance.choice(("commit", "remove", "restore", "live", "seed", "vouch", "plan", "read")):
        case "commit":
            log = [part for _ in _texts(chance) for part in (chance.randint(0, len(pairs) // 2), "entry")]
            request = f"r{chance.randint(1, 3)}"
            keys += [held, _key(chance, f"request {chance.randint(1, 9)}"), _key(chance, _LOG)]
            return lua.COMMIT, keys, [fence, request, 600, 100, len(pairs) // 2, *pairs, *log]
        case "remove":
            return lua.REMOVE, [*keys, held], [fence, *_texts(chance)]
        case "restore":
            return lua.RESTORE, [*keys, held], [fence, len(pairs) // 2, *pairs, *_texts(chance)]
        case "live":
            return lua.LIVE, [*keys, held], [fence]
        case "seed":
            return lua.SEED, keys, [fence]
        case "vouch":
            return lua.VOUCH, [*keys, _key(chance, _LIFE)], [fence, "a life"]
        case "plan":
            before = chance.choice(("", _version(chance)))
            tables = []
            for _ in rows:
                put = [part for field in _texts(chance) for part in (field, "row")]
                dropped = _texts(chance)
                tables += [len(put) // 2, len(dropped), *put, *dropped]
            return (
                lua.PLAN_WRITE,
                [*keys, _key(chance, _PLAN), *rows],
                [fence, before, _version(chance), *tables],
            )
        case _:
            plan = [_key(chance, _PLAN), *rows]
            reads: tuple[tuple[lua.Script, list[str], list[Any]], ...] = (
                (lua.FENCE, keys, []),
                (lua.LIFE, [_key(chance, _LIFE)], []),
                (lua.DECISIONS, [_key(chance, _LOG)], [2]),
                (lua.PLAN_READ, plan, []),
                (lua.PLAN_STATE, plan, []),
            )
            return chance.choice(reads)


def _plant(chance: random.Random, real: Any, data: Data) -> None:
    """Give the foreign key a value of a type that a script does not expect there."""
    match chance.randint(0, 2):
        case 0:
            real.set(_FOREIGN, "no number")
            data[_FOREIGN.encode()] = b"no number"
        case 1:
            real.hset(_FOREIGN, "a", "b")
            data[_FOREIGN.encode()] = {b"a": b"b"}
        case _:
            real.xadd(_FOREIGN, {"entry": "e"})
            data[_FOREIGN.encode()] = [b"e"]


def _shown(real: Any) -> Data:
    """Return what fakeredis holds, as the model does."""
    shown: Data = {}
    for key in real.keys("*"):
        match real.type(key):
            case b"string":
                shown[key] = real.get(key)
            case b"hash":
                shown[key] = real.hgetall(key)
            case _:
                shown[key] = [fields[b"entry"] for _, fields in real.xrange(key)]
    return shown


@pytest.mark.parametrize("seed", range(8))
def test_each_script_answers_and_writes_as_its_lua_does(seed: int) -> None:
    chance = random.Random(seed)
    # Without types: the library gives its methods none that fit bytes.
    real: Any = fakeredis.FakeRedis(server=fakeredis.FakeServer())
    data: Data = {}
    _plant(chance, real, data)

    for number in range(_CALLS):
        # Mostly that of a leader, which a later one replaces, at times an earlier one's.
        fence = max(1, 1 + number // 30 - (chance.random() < 0.1))
        script, keys, arguments = _call(chance, str(fence))
        want = real.eval(script.source, len(keys), *keys, *arguments)

        assert run_script(data, script.name, [len(keys), *keys, *arguments]) == want, (
            script.name,
            keys,
            arguments,
        )
        assert data == _shown(real), (script.name, keys, arguments)


def test_every_script_has_a_model() -> None:
    scripts = [script for script in vars(lua).values() if isinstance(script, lua.Script)]

    for script in scripts:
        keys = ["a", "b", "c", "d"]
        assert run_script({}, script.name, [len(keys), *keys, "1", "1", "1", "1", "0", "0", "0", "0", "0"])
