"""Queries through the official Python SDK."""

import pytest
from azure.cosmos import PartitionKey, exceptions
from items import connect


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """Forty items in five partitions, read by many tests and written by none."""
    from otobus import Otobus

    broker = Otobus(tmp_path_factory.mktemp("items"), has_items=True)
    broker.start()
    container = connect(broker, "http").create_database("d").create_container("c", PartitionKey("/k"))
    for n in range(40):
        container.create_item(
            {
                "id": f"i{n:02}",
                "k": f"k{n % 5}",
                "n": n,
                "mod": n % 4,
                "name": f"Name {n}",
                "tags": [{"t": "a", "w": n}, {"t": "b" if n % 2 else "c", "w": -n}],
                "nested": {"deep": {"value": n * 1.5}},
                **({"rare": True} if n % 10 == 0 else {}),
            }
        )
    yield container
    broker.kill()


def rows(container, query, parameters=None, **options):
    options.setdefault("enable_cross_partition_query", True)
    named = [{"name": name, "value": value} for name, value in (parameters or {}).items()]
    return list(container.query_items(query, parameters=named or None, **options))


@pytest.mark.parametrize(
    "query, expected",
    [
        ("SELECT VALUE COUNT(1) FROM c", [40]),
        ("SELECT COUNT(1) FROM c", [{"$1": 40}]),
        ("SELECT VALUE SUM(c.n) FROM c", [780]),
        ("SELECT VALUE AVG(c.n) FROM c WHERE c.n < 3", [1]),
        ("SELECT MIN(c.n) AS low, MAX(c.n) AS high FROM c", [{"low": 0, "high": 39}]),
        ("SELECT VALUE c.n FROM c WHERE c.n BETWEEN 3 AND 5 ORDER BY c.n", [3, 4, 5]),
        ("SELECT VALUE c.n FROM c WHERE c.n IN (7, 3, 99) ORDER BY c.n DESC", [7, 3]),
        ("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", [39, 38, 37]),
        ("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 10 LIMIT 3", [10, 11, 12]),
        ("SELECT DISTINCT VALUE c.mod FROM c ORDER BY c.mod", [0, 1, 2, 3]),
        ("SELECT c.mod, COUNT(1) AS n FROM c GROUP BY c.mod", [{"mod": m, "n": 10} for m in range(4)]),
        ("SELECT VALUE t.w FROM c JOIN t IN c.tags WHERE t.t = 'c' AND c.n < 5", [0, -2, -4]),
        ("SELECT VALUE c.n FROM c WHERE c.rare ORDER BY c.n", [0, 10, 20, 30]),
        ("SELECT VALUE c.n FROM c WHERE NOT IS_DEFINED(c.rare) AND c.n < 3", [1, 2]),
        ("SELECT VALUE c.n FROM c WHERE STARTSWITH(c.name, 'name 3', true) ORDER BY c.n", [3, *range(30, 40)]),
        ("SELECT VALUE c.n FROM c WHERE c.name LIKE '%9' ORDER BY c.n", [9, 19, 29, 39]),
        ("SELECT VALUE c.nested.deep['value'] FROM c WHERE c.n = 3", [4.5]),
        ("SELECT VALUE c.n FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.w > 37) ORDER BY c.n", [38, 39]),
        ("SELECT VALUE ARRAY(SELECT VALUE t.t FROM t IN c.tags) FROM c WHERE c.n = 1", [["a", "b"]]),
        ("SELECT VALUE c.n FROM c ORDER BY c.mod DESC, c.n ASC OFFSET 0 LIMIT 3", [3, 7, 11]),
        ("SELECT c.id, c.missing FROM c WHERE c.n = 0", [{"id": "i00"}]),
        ("SELECT VALUE {a: c.n, b: [c.mod]} FROM c WHERE c.n = 6", [{"a": 6, "b": [2]}]),
        ("SELECT VALUE (c.n ?? -1) + (c.none ?? 100) FROM c WHERE c.n = 5", [105]),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n = 'text'", [0]),
        ("SELECT VALUE 1 + 1", [2]),
        ('SELECT VALUE {"_rid": "r", "orderByItems": [{"item": c.none}], "payload": c.n} FROM c WHERE true AND c.n = 1 ORDER BY c.n',
         [{"_rid": "r", "orderByItems": [{}], "payload": 1}]),
    ],
)
def test_queries_across_partitions_answer_right(container, query, expected):
    found = rows(container, query)
    if "ORDER BY" not in query:
        found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert found == expected


def test_parameters_are_values_and_nothing_else(container):
    assert rows(container, "SELECT VALUE c.n FROM c WHERE c.n = @n", {"@n": 7}) == [7]
    assert rows(container, "SELECT VALUE c.n FROM c WHERE c.name = @n", {"@n": "x' OR true --"}) == []
    assert rows(container, "SELECT TOP @top VALUE c.n FROM c ORDER BY c.n", {"@top": 2}) == [0, 1]
    assert rows(container, "SELECT VALUE COUNT(1) FROM c WHERE ARRAY_CONTAINS(@list, c.n)", {"@list": [1, 2, 77]}) == [2]
    with pytest.raises(exceptions.CosmosHttpResponseError):
        rows(container, "SELECT VALUE @missing FROM c")


def test_one_partition_is_queried_alone(container):
    assert rows(container, "SELECT VALUE COUNT(1) FROM c", partition_key="k2", enable_cross_partition_query=False) == [8]
    assert rows(container, "SELECT VALUE c.n FROM c ORDER BY c.n", partition_key="k2")[:3] == [2, 7, 12]


@pytest.mark.parametrize("order", ["", " ORDER BY c.n", " ORDER BY c.n DESC", " ORDER BY c.mod, c.n"])
def test_pages_lead_from_one_to_the_next(container, order):
    query = f"SELECT VALUE c.n FROM c{order}"
    whole = rows(container, query)
    assert sorted(whole) == list(range(40))
    pages = container.query_items(query, enable_cross_partition_query=True, max_item_count=7).by_page()
    sizes, joined = [], []
    for page in pages:
        page = list(page)
        sizes.append(len(page))
        joined.extend(page)
    assert joined == whole
    assert max(sizes) <= 7


def test_a_page_is_found_again_by_its_continuation_across_writes(items_broker):
    container = connect(items_broker).create_database("d").create_container("c", PartitionKey("/k"))
    for n in range(0, 30, 3):
        container.create_item({"id": str(n), "k": n % 2, "n": n})
    query = "SELECT VALUE c.n FROM c ORDER BY c.n"
    pages = container.query_items(query, enable_cross_partition_query=True, max_item_count=4).by_page()
    assert list(next(pages)) == [0, 3, 6, 9]
    token = pages.continuation_token
    # Behind the page and before it: what was passed stays passed, what is ahead is seen.
    container.create_item({"id": "late", "k": 0, "n": 10})
    container.create_item({"id": "early", "k": 0, "n": 1})
    container.delete_item("12", 0)
    items_broker.restart()
    container = connect(items_broker).get_database_client("d").get_container_client("c")
    rest = container.query_items(query, enable_cross_partition_query=True, max_item_count=100).by_page(token)
    assert [n for page in rest for n in page] == [10, 15, 18, 21, 24, 27]
    other = container.query_items("SELECT VALUE c.n FROM c", enable_cross_partition_query=True).by_page(token)
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        list(next(other))
    assert refused.value.status_code == 400


def test_feed_ranges_share_the_items_between_them(container):
    ranges = list(container.read_feed_ranges())
    found = [n for each in ranges for n in rows(container, "SELECT VALUE c.n FROM c", feed_range=each, enable_cross_partition_query=None)]
    assert sorted(found) == list(range(40))
    one = container.feed_range_from_partition_key("k1")
    alone = rows(container, "SELECT VALUE c.n FROM c ORDER BY c.n", feed_range=one, enable_cross_partition_query=None)
    assert alone == list(range(1, 40, 5))


def test_what_a_query_cost_is_told(container):
    seen = {}

    def note(headers, _):
        seen.update(headers)

    rows(container, "SELECT * FROM c WHERE c.n = 5", populate_query_metrics=True, populate_index_metrics=True, response_hook=note)
    assert all("=" in entry for entry in seen["x-ms-documentdb-query-metrics"].split(";"))
    assert "outputDocumentCount=1" in seen["x-ms-documentdb-query-metrics"]
    assert seen["x-ms-cosmos-index-utilization"]
    assert float(seen["x-ms-request-charge"]) > 0


@pytest.mark.parametrize(
    "query",
    ["", "SELECT", "SELECT * FROM c WHERE", "SELECT * FROM c JOIN", "SELECT VALUE NO_SUCH(c.n) FROM c", "SELECT * FROM c WHERE c.n = 'x", "DROP TABLE c"],
)
def test_a_query_that_is_none_is_refused_with_its_place(container, query):
    with pytest.raises((exceptions.CosmosHttpResponseError, ValueError, TypeError)) as refused:
        rows(container, query)
    if isinstance(refused.value, exceptions.CosmosHttpResponseError):
        assert refused.value.status_code == 400
