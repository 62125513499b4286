"""The Redis of the tests is a real one, which can be lost in every way that matters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.redisserver import RedisServer


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


def test_data_survives_an_orderly_stop(redis_server: RedisServer, client: redis.Redis) -> None:
    client.set("key", "value")
    redis_server.stop()
    with pytest.raises(redis.ConnectionError):
        client.ping()

    redis_server.start()

    assert client.get("key") == b"value"


def test_a_frozen_server_answers_only_when_it_goes_on(redis_server: RedisServer, client: redis.Redis) -> None:
    redis_server.pause()
    impatient = redis.Redis.from_url(redis_server.url, socket_timeout=0.3, retry=Retry(NoBackoff(), 0))
    with impatient, pytest.raises(redis.TimeoutError):
        impatient.ping()

    redis_server.resume()

    assert client.ping()


def test_a_flushed_server_has_forgotten(redis_server: RedisServer, client: redis.Redis) -> None:
    client.set("key", "value")

    redis_server.flush()

    assert client.get("key") is None


def test_it_runs_scripts(client: redis.Redis) -> None:
    assert client.eval("return redis.call('INCRBY', KEYS[1], ARGV[1])", 1, "count", 3) == 3
