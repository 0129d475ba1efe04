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
    """What a feed gives, and its continuation, which the client makes of the server's and of what was asked."""
    found = list(container.query_items_change_feed(**options))
    return found, container.client_connection.last_response_headers["etag"]


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


def test_all_versions_and_deletes_are_told_where_they_are_kept(items_broker, database):
    plain = database.create_container("plain", PartitionKey("/k"))
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        changes(plain, mode="AllVersionsAndDeletes")
    assert refused.value.status_code == 400
    container = database.create_container(
        "c", PartitionKey("/k"), default_ttl=100, change_feed_policy={"retentionDuration": 10}
    )
    _, after = changes(container, mode="AllVersionsAndDeletes")
    container.create_item({"id": "1", "k": 1, "n": 1})
    container.upsert_item({"id": "1", "k": 1, "n": 2})
    container.delete_item("1", 1)
    container.create_item({"id": "2", "k": 1})
    found, after = changes(container, mode="AllVersionsAndDeletes", continuation=after)
    assert [one["metadata"]["operationType"] for one in found] == ["create", "replace", "delete", "create"]
    assert found[1]["current"]["n"] == 2
    advance(items_broker, "PT101S")
    found, after = eventually(lambda: changes(container, mode="AllVersionsAndDeletes", continuation=after))
    assert found[0]["metadata"]["operationType"] == "delete"
    assert found[0]["metadata"]["timeToLiveExpired"] is True


def eventually(look):
    """An expired item is told when it is removed, soon after (C-34)."""
    import time

    deadline = time.monotonic() + 20
    while True:
        found, after = look()
        if found or time.monotonic() > deadline:
            return found, after


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
            ordered = container.query_items("SELECT VALUE c.n FROM c ORDER BY c.n DESC", max_item_count=9)
            assert [n async for n in ordered] == list(range(49, -1, -1))
            counted = container.query_items("SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k")
            assert sorted([(one["k"], one["n"]) async for one in counted]) == [(0, 17), (1, 17), (2, 16)]
            patched = await container.patch_item("7", 1, [{"op": "incr", "path": "/n", "value": 1}])
            assert patched["n"] == 8
            answer = await container.execute_item_batch([("upsert", ({"id": "a", "k": 9},)), ("read", ("a",))], 9)
            assert [one["statusCode"] for one in answer] == [201, 200]
            many = await container.read_items([("1", 1), ("2", 2), ("3", 0)])
            assert sorted(one["id"] for one in many) == ["1", "2", "3"]
            feed = container.query_items_change_feed(start_time="Beginning")
            assert len([one async for one in feed]) == 51
            advance(items_broker, "PT101S")
            assert [one async for one in container.read_all_items()] == []
            with pytest.raises(exceptions.CosmosResourceNotFoundError):
                await container.read_item("7", 1)

    asyncio.run(story())
