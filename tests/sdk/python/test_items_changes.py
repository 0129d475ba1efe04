"""The change feed through the official Python SDK, and the same client as a coroutine."""

import asyncio
from datetime import datetime, timezone

import pytest
from azure.cosmos import PartitionKey, exceptions
from items import advance, connect, connect_async


@pytest.fixture
def database(items_broker):
    return connect(items_broker).create_database("d")


def changes(container, **options):
    """What a feed gives, and its continuation."""
    seen = {}
    feed = container.query_items_change_feed(response_hook=lambda headers, _: seen.update(headers), **options)
    found = list(feed)
    return found, seen["etag"]


def names(found):
    return [one["id"] for one in found]


def test_the_latest_version_of_each_item_comes_once_in_order_of_change(database):
    container = database.create_container("c", PartitionKey("/k"))
    for n in range(5):
        container.create_item({"id": str(n), "k": n % 2})
    container.upsert_item({"id": "1", "k": 1, "again": True})
    container.delete_item("3", 1)
    found, after = changes(container, start_time="Beginning")
    assert names(found) == ["0", "2", "4", "1"]
    assert all("_lsn" in one for one in found)
    found, after = changes(container, continuation=after)
    assert found == []
    container.create_item({"id": "5", "k": 1})
    found, _ = changes(container, continuation=after)
    assert names(found) == ["5"]


def test_a_feed_begins_now_at_a_time_and_in_one_partition(items_broker, database):
    container = database.create_container("c", PartitionKey("/k"))
    container.create_item({"id": "old", "k": 1})
    found, now = changes(container, start_time="Now")
    assert found == []
    moved = datetime.fromisoformat(advance(items_broker, "PT1H"))
    container.create_item({"id": "new", "k": 2})
    assert names(changes(container, continuation=now)[0]) == ["new"]
    assert names(changes(container, start_time=moved.astimezone(timezone.utc).replace(microsecond=0))[0]) == ["new"]
    assert names(changes(container, start_time="Beginning", partition_key=1)[0]) == ["old"]


def test_the_feed_survives_a_restart(items_broker, database):
    container = database.create_container("c", PartitionKey("/k"))
    container.create_item({"id": "1", "k": 1})
    _, after = changes(container, start_time="Beginning")
    items_broker.restart()
    container = connect(items_broker).get_database_client("d").get_container_client("c")
    container.create_item({"id": "2", "k": 1})
    assert names(changes(container, continuation=after)[0]) == ["2"]


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_the_asynchronous_client_does_the_same(items_broker, scheme):
    async def story():
        async with connect_async(items_broker, scheme) as client:
            database = await client.create_database("d")
            container = await database.create_container("c", PartitionKey("/k"), default_ttl=100)
            await asyncio.gather(*(container.create_item({"id": str(n), "k": n % 3, "n": n}) for n in range(50)))
            assert (await container.read_item("7", 1))["n"] == 7
            patched = await container.patch_item("7", 1, [{"op": "incr", "path": "/n", "value": 1}])
            assert patched["n"] == 8
            answer = await container.execute_item_batch([("upsert", ({"id": "a", "k": 9},)), ("read", ("a",))], 9)
            assert [one["statusCode"] for one in answer] == [201, 200]
            feed = container.query_items_change_feed(start_time="Beginning")
            assert len([one async for one in feed]) == 51
            advance(items_broker, "PT101S")
            assert [one async for one in container.read_all_items()] == []
            with pytest.raises(exceptions.CosmosResourceNotFoundError):
                await container.read_item("7", 1)

    asyncio.run(story())
