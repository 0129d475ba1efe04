"""Items through the official Python SDK: definitions, items, concurrency control, keys, errors."""


import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, ThroughputProperties, exceptions
from items import ask, connect
from otobus import ITEMS_KEY


@pytest.fixture(params=["https", "http"])
def client(items_broker, request):
    return connect(items_broker, request.param)


@pytest.fixture
def database(client):
    return client.create_database("shop")


@pytest.fixture
def container(database):
    return database.create_container("carts", PartitionKey("/user"))


def test_databases_and_containers_are_made_listed_found_and_deleted(client):
    database = client.create_database("shop")
    with pytest.raises(exceptions.CosmosResourceExistsError):
        client.create_database("shop")
    client.create_database_if_not_exists("bank")
    assert [one["id"] for one in client.list_databases()] == ["shop", "bank"]
    found = client.query_databases("SELECT * FROM r WHERE r.id = @id", parameters=[{"name": "@id", "value": "bank"}])
    assert [one["id"] for one in found] == ["bank"]
    database.create_container("carts", PartitionKey("/user"))
    database.create_container_if_not_exists("carts", PartitionKey("/user"))
    container = database.create_container("orders", PartitionKey("/user"), default_ttl=60)
    assert [one["id"] for one in database.list_containers()] == ["carts", "orders"]
    properties = container.read()
    assert properties["defaultTtl"] == 60
    assert properties["indexingPolicy"]["indexingMode"] == "consistent"
    assert properties["partitionKey"] == {"paths": ["/user"], "kind": "Hash", "version": 2}
    replaced = database.replace_container(container, PartitionKey("/user"), default_ttl=-1)
    assert replaced.read()["defaultTtl"] == -1
    database.delete_container("orders")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read()
    client.delete_database("shop")
    assert [one["id"] for one in client.list_databases()] == ["bank"]


def test_an_item_is_created_read_replaced_upserted_and_deleted(container):
    created = container.create_item({"id": "1", "user": "ann", "n": 1})
    for member in ("_rid", "_self", "_etag", "_ts", "_attachments"):
        assert member in created
    assert container.read_item("1", "ann")["n"] == 1
    replaced = container.replace_item("1", {"id": "1", "user": "ann", "n": 2})
    assert replaced["n"] == 2 and replaced["_etag"] != created["_etag"] and replaced["_rid"] == created["_rid"]
    assert container.upsert_item({"id": "1", "user": "ann", "n": 3})["n"] == 3
    assert container.upsert_item({"id": "2", "user": "ann"})["id"] == "2"
    container.delete_item("1", "ann")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item("1", "ann")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.delete_item("1", "ann")
    assert [one["id"] for one in container.read_all_items()] == ["2"]


def test_what_was_read_stands_for_the_item(container):
    # P-28: the SDK addresses it by its `_self` then.
    item = container.create_item({"id": "1", "user": "ann", "n": 1})
    assert container.read_item(item, "ann")["n"] == 1
    item["n"] = 2
    replaced = container.replace_item(item, item)
    assert replaced["n"] == 2 and replaced["_rid"] == item["_rid"]
    assert container.patch_item(item, "ann", [{"op": "incr", "path": "/n", "value": 1}])["n"] == 3
    container.delete_item(item, "ann")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item(item, "ann")


# CX-6.4
def test_a_replace_may_change_the_id(container):
    made = container.create_item({"id": "1", "user": "ann", "n": 1})
    container.create_item({"id": "2", "user": "ann"})
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.replace_item("1", {"id": "2", "user": "ann"})
    stale = {"etag": "\"stale\"", "match_condition": MatchConditions.IfNotModified}
    with pytest.raises(exceptions.CosmosAccessConditionFailedError):
        container.replace_item("1", {"id": "3", "user": "ann"}, **stale)
    renamed = container.replace_item("1", {"id": "3", "user": "ann", "n": 2})
    assert renamed["_rid"] == made["_rid"] and container.read_item("3", "ann")["n"] == 2
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item("1", "ann")
    found = container.query_items("SELECT VALUE c.id FROM c WHERE c.user = 'ann'", partition_key="ann")
    assert sorted(found) == ["2", "3"]


def test_an_autoscale_offer_keeps_how_it_grows(database):
    # P-77
    most = ThroughputProperties(auto_scale_max_throughput=5000, auto_scale_increment_percent=2)
    container = database.create_container("grows", PartitionKey("/user"), offer_throughput=most)
    told = container.get_throughput()
    assert (told.auto_scale_max_throughput, told.auto_scale_increment_percent) == (5000, 2)
    container.replace_throughput(ThroughputProperties(auto_scale_max_throughput=7000, auto_scale_increment_percent=20))
    told = container.get_throughput()
    assert (told.auto_scale_max_throughput, told.auto_scale_increment_percent) == (7000, 20)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        wrong = ThroughputProperties(auto_scale_max_throughput=-200, auto_scale_increment_percent=0)
        database.create_container("wrong", PartitionKey("/user"), offer_throughput=wrong)
    assert "Requested throughput -200 is less than required minimum throughput 1000" in str(refused.value)


def test_an_id_is_taken_within_its_partition_alone(container):
    container.create_item({"id": "1", "user": "ann"})
    with pytest.raises(exceptions.CosmosResourceExistsError) as refused:
        container.create_item({"id": "1", "user": "ann"})
    assert refused.value.status_code == 409
    container.create_item({"id": "1", "user": "bob"})
    assert len(list(container.read_all_items())) == 2


def test_whatever_a_name_and_an_item_hold_comes_back(container):
    for name in ("a b", "ü漢字🙂", "per%cent", "quo'te", "plus+and&"):
        item = {"id": name, "user": name, "text": "line\nquote\" ü 漢字 🙂", "n": [1.5, -7, 1e300, 9007199254740993, True, None]}
        container.create_item(item)
        read = container.read_item(name, name)
        assert {member: read[member] for member in item} == item


def test_only_who_saw_the_newest_may_write(container):
    first = container.create_item({"id": "1", "user": "ann", "n": 1})
    second = container.replace_item("1", {"id": "1", "user": "ann", "n": 2})
    stale = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    for write in (
        lambda: container.replace_item("1", {"id": "1", "user": "ann", "n": 9}, **stale),
        lambda: container.upsert_item({"id": "1", "user": "ann", "n": 9}, **stale),
        lambda: container.patch_item("1", "ann", [{"op": "set", "path": "/n", "value": 9}], **stale),
        lambda: container.delete_item("1", "ann", **stale),
    ):
        with pytest.raises(exceptions.CosmosAccessConditionFailedError):
            write()
    assert container.read_item("1", "ann")["n"] == 2
    fresh = {"etag": second["_etag"], "match_condition": MatchConditions.IfNotModified}
    container.replace_item("1", {"id": "1", "user": "ann", "n": 3}, **fresh)
    assert container.read_item("1", "ann")["n"] == 3


def test_content_is_left_out_when_nobody_wants_it(container):
    answer = container.create_item({"id": "1", "user": "ann"}, no_response=True)
    assert dict(answer) == {}
    assert answer.get_response_headers()["etag"]
    assert container.read_item("1", "ann")["id"] == "1"


def test_keys_of_every_type_are_partitions_of_their_own(container):
    values = ["", "1", 1, 1.5, True, False, None]
    for index, value in enumerate(values):
        container.create_item({"id": "same", "user": value, "index": index})
    container.create_item({"id": "same", "index": len(values)})
    for index, value in enumerate(values):
        key = value if value is not None else container_null()
        assert container.read_item("same", key)["index"] == index
    from azure.cosmos.partition_key import NonePartitionKeyValue

    assert container.read_item("same", NonePartitionKeyValue)["index"] == len(values)


def container_null():
    from azure.cosmos.partition_key import NullPartitionKeyValue

    return NullPartitionKeyValue


def test_hierarchical_keys_are_found_whole_and_by_their_beginning(database):
    container = database.create_container("deep", PartitionKey(["/tenant", "/user", "/session"], kind="MultiHash"))
    for tenant in ("a", "b"):
        for user in ("x", "y"):
            for session in (1, 2):
                container.create_item({"id": f"{tenant}{user}{session}", "tenant": tenant, "user": user, "session": session})
    assert container.read_item("ax1", ["a", "x", 1])["session"] == 1
    one = container.query_items("SELECT VALUE c.id FROM c", partition_key=["a", "x", 2])
    assert list(one) == ["ax2"]
    prefix = container.query_items("SELECT VALUE c.id FROM c ORDER BY c.id", partition_key=["a", "y"])
    assert list(prefix) == ["ay1", "ay2"]
    wide = container.query_items("SELECT VALUE c.id FROM c ORDER BY c.id", partition_key=["b"])
    assert list(wide) == ["bx1", "bx2", "by1", "by2"]


def test_unique_keys_hold_within_a_partition(database):
    policy = {"uniqueKeys": [{"paths": ["/mail"]}, {"paths": ["/first", "/last"]}]}
    container = database.create_container("people", PartitionKey("/team"), unique_key_policy=policy)
    container.create_item({"id": "1", "team": "a", "mail": "m", "first": "f", "last": "l"})
    for clash in ({"mail": "m"}, {"mail": "other", "first": "f", "last": "l"}):
        with pytest.raises(exceptions.CosmosResourceExistsError):
            container.create_item({"id": "2", "team": "a", **clash})
    container.create_item({"id": "2", "team": "b", "mail": "m"})
    container.delete_item("1", "a")
    container.create_item({"id": "3", "team": "a", "mail": "m", "first": "f", "last": "l"})


def test_patches_change_what_they_name_and_nothing_else(container):
    container.create_item({"id": "1", "user": "ann", "n": 1, "tags": ["a"], "gone": True, "from": 7})
    patched = container.patch_item(
        "1",
        "ann",
        [
            {"op": "set", "path": "/name", "value": "x"},
            {"op": "add", "path": "/tags/-", "value": "b"},
            {"op": "replace", "path": "/tags/0", "value": "c"},
            {"op": "incr", "path": "/n", "value": 5},
            {"op": "remove", "path": "/gone"},
            {"op": "move", "from": "/from", "path": "/to"},
        ],
    )
    assert (patched["name"], patched["tags"], patched["n"], patched["to"]) == ("x", ["c", "b"], 6, 7)
    assert "gone" not in patched and "from" not in patched
    for operations in (
        [{"op": "replace", "path": "/missing", "value": 1}],
        [{"op": "set", "path": "/id", "value": "2"}],
        [{"op": "set", "path": "/user", "value": "bob"}],
        [{"op": "incr", "path": "/name", "value": 1}],
        [{"op": "set", "path": f"/m{n}", "value": n} for n in range(11)],
    ):
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            container.patch_item("1", "ann", operations)
        assert refused.value.status_code == 400
    with pytest.raises(exceptions.CosmosAccessConditionFailedError):
        container.patch_item("1", "ann", [{"op": "incr", "path": "/n", "value": 1}], filter_predicate="from c where c.n > 100")
    container.patch_item("1", "ann", [{"op": "incr", "path": "/n", "value": 1}], filter_predicate="from c where c.n = 6")
    assert container.read_item("1", "ann")["n"] == 7


def test_a_batch_happens_whole_or_not_at_all(container):
    answer = container.execute_item_batch(
        [
            ("create", ({"id": "1", "user": "ann", "n": 1},)),
            ("upsert", ({"id": "2", "user": "ann"},)),
            ("read", ("1",)),
            ("patch", ("1", [{"op": "incr", "path": "/n", "value": 1}])),
            ("replace", ("2", {"id": "2", "user": "ann", "n": 5})),
            ("delete", ("2",)),
        ],
        "ann",
    )
    assert [one["statusCode"] for one in answer] == [201, 201, 200, 200, 200, 204]
    assert answer[2]["resourceBody"]["n"] == 1 and answer[3]["resourceBody"]["n"] == 2
    with pytest.raises(exceptions.CosmosBatchOperationError) as failed:
        container.execute_item_batch(
            [("create", ({"id": "3", "user": "ann"},)), ("create", ({"id": "1", "user": "ann"},)), ("delete", ("1",))], "ann"
        )
    assert failed.value.error_index == 1
    assert [one["statusCode"] for one in failed.value.operation_responses] == [424, 409, 424]
    assert [one["id"] for one in container.read_all_items()] == ["1"]
    for operations, text in (([], "Batch request has no operations."), ([("read", ("1",))] * 101, "more operations")):
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            container.execute_item_batch(operations, "ann")
        assert refused.value.status_code == 400 and text in refused.value.message


def test_many_are_read_at_once(container):
    for n in range(20):
        container.create_item({"id": str(n), "user": f"u{n % 3}"})
    wanted = [(str(n), f"u{n % 3}") for n in range(0, 20, 2)] + [("missing", "u0")]
    assert sorted(int(one["id"]) for one in container.read_items(wanted)) == list(range(0, 20, 2))


def test_a_partition_is_deleted_by_its_key(container):
    for n in range(5):
        container.create_item({"id": str(n), "user": "ann" if n < 3 else "bob"})
    container.delete_all_items_by_partition_key("ann")
    assert [one["id"] for one in container.read_all_items()] == ["3", "4"]


def test_throughput_is_kept_and_told(database):
    container = database.create_container("paid", PartitionKey("/k"), offer_throughput=400)
    assert container.get_throughput().offer_throughput == 400
    assert container.replace_throughput(500).offer_throughput == 500
    assert container.get_throughput().offer_throughput == 500
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        database.create_container("odd", PartitionKey("/k"), offer_throughput=401)
    assert refused.value.status_code == 400


def test_scripts_are_kept_and_not_run(container):
    scripts = container.scripts
    scripts.create_stored_procedure({"id": "s", "body": "function () {}"})
    assert [one["id"] for one in scripts.list_stored_procedures()] == ["s"]
    scripts.create_trigger({"id": "t", "body": "function () {}", "triggerType": "Pre", "triggerOperation": "All"})
    scripts.create_user_defined_function({"id": "f", "body": "function () {}"})
    assert scripts.get_trigger("t")["triggerType"] == "Pre"
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        scripts.execute_stored_procedure("s", partition_key="ann")
    assert refused.value.status_code == 400 and "not run" in refused.value.message
    scripts.delete_stored_procedure("s")
    assert list(scripts.list_stored_procedures()) == []
    assert list(container.list_conflicts()) == []


def test_users_and_permissions_are_kept(database, container):
    user = database.create_user({"id": "u"})
    assert [one["id"] for one in database.list_users()] == ["u"]
    permission = user.create_permission({"id": "p", "permissionMode": "Read", "resource": container.container_link})
    assert permission.id == "p"
    assert [one["id"] for one in user.list_permissions()] == ["p"]
    user.delete_permission("p")
    database.delete_user("u")
    assert list(database.list_users()) == []


def test_bad_requests_are_told_apart(container):
    for item in ({"user": "ann"}, {"id": 5, "user": "ann"}, {"id": "", "user": "ann"}):
        with pytest.raises((exceptions.CosmosHttpResponseError, TypeError, ValueError)):
            container.create_item(item)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        container.create_item({"id": "big", "user": "ann", "text": "x" * (2 * 1024 * 1024)})
    assert refused.value.status_code == 413
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        list(container.query_items("SELECT * FORM c", enable_cross_partition_query=True))
    assert refused.value.status_code == 400 and '"errors"' in refused.value.message.replace("\\", "")
    assert list(container.read_all_items()) == []


def test_a_wrong_key_and_a_read_only_key_are_told_apart(items_broker):
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        connect(items_broker, key="d3Jvbmc=").create_database("d")
    assert refused.value.status_code == 401
    keys = dict(
        line.split(" = ") for line in (items_broker.data / "items-keys.toml").read_text().splitlines() if " = " in line
    )
    connect(items_broker, key=keys["primary"].strip('"')).create_database("d")
    reader = connect(items_broker, key=keys["primary_read_only"].strip('"'))
    assert [one["id"] for one in reader.list_databases()] == ["d"]
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        reader.create_database("e")
    assert refused.value.status_code == 403


def test_a_container_that_was_made_again_is_found_again(items_broker, container, database):
    container.create_item({"id": "1", "user": "ann"})
    other = connect(items_broker).get_database_client("shop")
    other.delete_container("carts")
    other.create_container("carts", PartitionKey("/user"))
    container.create_item({"id": "2", "user": "ann"})
    assert [one["id"] for one in container.read_all_items()] == ["2"]


def test_what_was_accepted_survives_a_kill(items_broker):
    container = connect(items_broker).create_database("d").create_container("c", PartitionKey("/k"))
    written = [container.create_item({"id": str(n), "k": n % 3})["_etag"] for n in range(30)]
    items_broker.restart()
    container = connect(items_broker).get_database_client("d").get_container_client("c")
    found = {one["id"]: one["_etag"] for one in container.read_all_items()}
    assert found == {str(n): etag for n, etag in enumerate(written)}


def test_what_the_file_declares_is_there(tmp_path):
    from otobus import Otobus

    broker = Otobus(tmp_path, has_items=True)
    with broker.config.open("a") as config:
        config.write('[[database]]\nname = "shop"\n[[database.container]]\nname = "carts"\n'
                     'partition_key = ["/tenant", "/user"]\ndefault_ttl = 60\n')
    try:
        broker.start()
        for _ in range(2):
            properties = connect(broker).get_database_client("shop").get_container_client("carts").read()
            assert properties["defaultTtl"] == 60
            assert properties["partitionKey"]["kind"] == "MultiHash"
            broker.restart()
    finally:
        broker.kill()


def test_health_is_told_without_a_key(items_broker):
    import urllib.request

    for path in ("/ready", "/health"):
        with urllib.request.urlopen(f"http://localhost:{items_broker.items_port}{path}") as answer:
            assert answer.status == 200
    status, headers, _ = ask(items_broker, "GET", "/dbs/none", "dbs", "dbs/none")
    assert status == 404 and headers["x-ms-substatus"] == "0"
    assert ask(items_broker, "GET", "/dbs", "dbs", "", key=ITEMS_KEY)[0] == 200
