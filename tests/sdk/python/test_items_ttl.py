"""Time to live through the official Python SDK: every rule, with time moved and with real time."""

import threading
import time

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, exceptions
from items import advance, connect

# The table of the founding page (C-18): container, item, and whether it is there after 999, 1000, 1999 and 2000 seconds.
ABSENT = object()
FOR_EVER, UNTIL_1000, UNTIL_2000 = (True,) * 4, (True, False, False, False), (True, True, True, False)
CELLS = [
    (None, ABSENT, FOR_EVER),
    (None, -1, FOR_EVER),
    (None, 2000, FOR_EVER),
    (-1, ABSENT, FOR_EVER),
    (-1, -1, FOR_EVER),
    (-1, 2000, UNTIL_2000),
    (1000, ABSENT, UNTIL_1000),
    (1000, -1, FOR_EVER),
    (1000, 2000, UNTIL_2000),
]


@pytest.fixture
def database(items_broker):
    return connect(items_broker).create_database("d")


def made(database, ttl, name="c"):
    return database.create_container(name, PartitionKey("/k"), default_ttl=ttl)


def item(ttl=ABSENT, **more):
    return {"id": "1", "k": "x", **({} if ttl is ABSENT else {"ttl": ttl}), **more}


def is_there(container, name="1"):
    """Whether it is, by every way to see it; they must agree (C-16, C-30, C-33)."""
    try:
        by_id = container.read_item(name, "x")["id"] == name
    except exceptions.CosmosResourceNotFoundError:
        by_id = False
    seen = {
        "id": by_id,
        "feed": name in [one["id"] for one in container.read_all_items()],
        "query": name in list(container.query_items("SELECT VALUE c.id FROM c", enable_cross_partition_query=True)),
        "count": list(container.query_items(f"SELECT VALUE COUNT(1) FROM c WHERE c.id = '{name}'",
                                            enable_cross_partition_query=True)) == [1],
        "many": name in [one["id"] for one in container.read_items([(name, "x"), ("none", "x")])],
        "changes": name in [one["id"] for one in container.query_items_change_feed(start_time="Beginning")],
    }
    assert len(set(seen.values())) == 1, seen
    return by_id


def test_the_nine_cells_of_the_table(items_broker, database):
    containers = []
    for index, (container_ttl, item_ttl, _) in enumerate(CELLS):
        container = made(database, container_ttl, f"c{index}")
        container.create_item(item(item_ttl))
        containers.append(container)
    # The creates took a little real time, so the last second is passed with some to spare.
    for step, (by, label) in enumerate([("PT995S", 999), ("PT6S", 1000), ("PT990S", 1999), ("PT20S", 2000)]):
        advance(items_broker, by)
        for container, (_, _, expected) in zip(containers, CELLS):
            assert is_there(container) == expected[step], (label, expected)


def test_every_write_starts_the_time_anew(items_broker, database):
    container = made(database, 100)
    container.create_item(item(n=0))
    writes = [
        lambda: container.replace_item("1", item(n=1)),
        lambda: container.upsert_item(item(n=2)),
        lambda: container.patch_item("1", "x", [{"op": "incr", "path": "/n", "value": 1}]),
        lambda: container.execute_item_batch([("upsert", (item(n=4),))], "x"),
    ]
    for write in writes:
        advance(items_broker, "PT90S")
        assert is_there(container)
        write()
    advance(items_broker, "PT90S")
    assert is_there(container)
    advance(items_broker, "PT11S")
    assert not is_there(container)


def test_an_expired_item_is_gone_for_every_operation_and_its_id_is_free(items_broker, database):
    container = made(database, 10)
    old = container.create_item(item())
    advance(items_broker, "PT11S")
    missing = exceptions.CosmosResourceNotFoundError
    for operation in (
        lambda: container.read_item("1", "x"),
        lambda: container.replace_item("1", item()),
        lambda: container.replace_item("1", item(), etag=old["_etag"], match_condition=MatchConditions.IfNotModified),
        lambda: container.patch_item("1", "x", [{"op": "set", "path": "/n", "value": 1}]),
        lambda: container.delete_item("1", "x"),
    ):
        with pytest.raises(missing):
            operation()
    with pytest.raises(exceptions.CosmosBatchOperationError) as failed:
        container.execute_item_batch([("read", ("1",))], "x")
    assert failed.value.operation_responses[0]["statusCode"] == 404
    new = container.create_item(item())
    assert new["_rid"] != old["_rid"] and new["_etag"] != old["_etag"]
    assert is_there(container)


def test_an_expired_item_holds_no_unique_key(items_broker, database):
    policy = {"uniqueKeys": [{"paths": ["/mail"]}]}
    container = database.create_container("c", PartitionKey("/k"), default_ttl=10, unique_key_policy=policy)
    container.create_item(item(mail="m"))
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.create_item({"id": "2", "k": "x", "mail": "m"})
    advance(items_broker, "PT11S")
    container.create_item({"id": "2", "k": "x", "mail": "m"})


@pytest.mark.parametrize("ttl", [0, -10, None, "5", 1.5, True, 2147483648, [], {}])
def test_a_wrong_time_to_live_is_refused_and_nothing_written(database, ttl):
    container = made(database, 100)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        container.create_item(item(ttl))
    assert refused.value.status_code == 400
    assert "ttl" in refused.value.message
    assert list(container.read_all_items()) == []


@pytest.mark.parametrize("ttl", [-1, 1, 2147483647])
def test_the_ends_of_the_range_are_taken(database, ttl):
    container = made(database, -1)
    assert container.create_item(item(ttl))["ttl"] == ttl
    assert made(database, ttl, "other").read()["defaultTtl"] == ttl


@pytest.mark.parametrize("ttl", [0, -10, 2147483648])
def test_a_wrong_default_is_refused(database, ttl):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        made(database, ttl)
    assert refused.value.status_code == 400


def test_without_a_default_what_is_no_number_is_just_a_property(database):
    container = made(database, None)
    for index, ttl in enumerate((None, "soon", {"days": 2}, 100, -1)):
        assert container.create_item({"id": str(index), "k": "x", "ttl": ttl})["ttl"] == ttl


@pytest.mark.parametrize("ttl", (0, -10, 1.5, 2147483648))
def test_without_a_default_a_number_that_is_no_ttl_is_refused(database, ttl):
    # C-23: the JavaScript SDK's own tests of bulk requests rely on it.
    container = made(database, None)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        container.create_item({"id": "1", "k": "x", "ttl": ttl})
    assert refused.value.status_code == 400


def test_no_ttl_is_added_to_an_item(database):
    container = made(database, 100)
    assert "ttl" not in container.create_item(item())
    assert "ttl" not in container.read_item("1", "x")


def test_a_default_that_changes_counts_for_what_is_there(items_broker, database):
    container = made(database, None)
    container.create_item(item())
    container.create_item({"id": "2", "k": "x", "ttl": 50})
    advance(items_broker, "PT1H")
    assert is_there(container) and is_there(container, "2")
    # Lowering a default can expire many at once (C-27); an own ttl counts again as soon as there is a default (C-25).
    database.replace_container(container, PartitionKey("/k"), default_ttl=-1)
    assert is_there(container) and not is_there(container, "2")
    database.replace_container(container, PartitionKey("/k"), default_ttl=600)
    assert not is_there(container)


def test_what_has_expired_does_not_come_back(items_broker, database):
    container = made(database, 10)
    container.create_item(item())
    advance(items_broker, "PT11S")
    # C-41: neither a longer time to live nor none brings it back.
    database.replace_container(container, PartitionKey("/k"), default_ttl=10_000)
    assert not is_there(container)
    database.replace_container(container, PartitionKey("/k"))
    assert not is_there(container)
    items_broker.restart(flags=["--test-clock"])
    container = connect(items_broker).get_database_client("d").get_container_client("c")
    assert not is_there(container)


def test_switching_it_off_lets_items_live(items_broker, database):
    container = made(database, 100)
    container.create_item(item(200))
    advance(items_broker, "PT90S")
    database.replace_container(container, PartitionKey("/k"))
    assert "defaultTtl" not in container.read()
    advance(items_broker, "PT1H")
    assert is_there(container)


def test_time_goes_on_over_a_restart(items_broker, database):
    container = made(database, 100)
    container.create_item(item())
    advance(items_broker, "PT90S")
    items_broker.restart(flags=["--test-clock"])
    container = connect(items_broker).get_database_client("d").get_container_client("c")
    assert is_there(container)
    advance(items_broker, "PT11S")
    assert not is_there(container)


def test_it_needs_an_index(database):
    none = {"indexingMode": "none", "automatic": False}
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        database.create_container("n", PartitionKey("/k"), indexing_policy=none, default_ttl=5)
    assert refused.value.status_code == 400
    excluded = {"indexingMode": "consistent", "includedPaths": [], "excludedPaths": [{"path": "/*"}]}
    database.create_container("e", PartitionKey("/k"), indexing_policy=excluded, default_ttl=5)


def test_the_clock_of_the_bus_moves_items_too(items_broker, database):
    from clock import Clock

    container = made(database, 100)
    container.create_item(item())
    told = Clock(items_broker).advance("PT101S")
    assert "items" in told
    assert not is_there(container)


def test_real_time_ends_items_too(items_broker, database):
    """The timing test of the JavaScript SDK, its cases side by side."""
    five, eight, own, off = (made(database, ttl, f"c{ttl}") for ttl in (5, 8, -1, None))
    began = time.monotonic()
    five.create_item(item())
    five.create_item({"id": "never", "k": "x", "ttl": -1})
    five.create_item({"id": "two", "k": "x", "ttl": 2})
    five.create_item({"id": "eight", "k": "x", "ttl": 8})
    eight.create_item(item())
    own.create_item(item(2))
    off.create_item(item(5))
    wait_until(began + 4)
    assert not is_there(five, "two") and not is_there(own) and is_there(five)
    wait_until(began + 7)
    assert not is_there(five) and is_there(five, "eight") and is_there(off) and is_there(five, "never")
    wait_until(began + 10.5)
    assert not is_there(five, "eight") and not is_there(eight) and is_there(five, "never")
    eight.create_item(item())
    assert is_there(eight)


def wait_until(moment):
    """Real time is what the test is about, so it is waited for."""
    threading.Event().wait(max(0, moment - time.monotonic()))
