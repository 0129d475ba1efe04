"""Everything that the administration client can do, every property there and back."""

import inspect
import urllib.request
from datetime import datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import (
    AccessRights,
    ApiVersion,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from clock import token
from otobus import EMULATOR_KEY

KEY = "c3VjaCBhIGxvbmcga2V5IHdpdGggNDQgY2hhcmFjdGVycyE="

COMMON = {
    "auto_delete_on_idle": timedelta(minutes=10),
    "default_message_time_to_live": timedelta(minutes=11),
    "enable_batched_operations": False,
    "user_metadata": "a <note> & more",
}
STORED = COMMON | {
    "duplicate_detection_history_time_window": timedelta(minutes=12),
    "max_size_in_megabytes": 2048,
    "max_message_size_in_kilobytes": 2048,
}
RECEIVED = COMMON | {
    "dead_lettering_on_message_expiration": True,
    "lock_duration": timedelta(seconds=13),
    "max_delivery_count": 14,
}
# Some exclude each other, so there are two of each; what is on in one is off in the other.
QUEUE = STORED | RECEIVED | {
    "requires_session": True, "requires_duplicate_detection": False, "enable_partitioning": False, "enable_express": True,
}
DETECTING_QUEUE = QUEUE | {
    "requires_session": False, "requires_duplicate_detection": True, "enable_partitioning": True, "enable_express": False,
    "dead_lettering_on_message_expiration": False, "enable_batched_operations": True,
}
TOPIC = STORED | {
    "requires_duplicate_detection": True, "support_ordering": False, "enable_partitioning": False,
    "enable_express": False,
}
EXPRESS_TOPIC = TOPIC | {
    "requires_duplicate_detection": False, "support_ordering": True, "enable_partitioning": True,
    "enable_express": True, "enable_batched_operations": True,
}
SUBSCRIPTION = RECEIVED | {"requires_session": True, "dead_lettering_on_filter_evaluation_exceptions": False}
LENIENT_SUBSCRIPTION = SUBSCRIPTION | {
    "requires_session": False, "dead_lettering_on_filter_evaluation_exceptions": True,
    "dead_lettering_on_message_expiration": False, "enable_batched_operations": True,
}
FORWARDS = {"forward_to", "forward_dead_lettered_messages_to"}


@pytest.fixture(params=[ApiVersion.V2021_05, None], ids=["2021-05", "latest"])
def admin(broker, request):
    options = {"connection_verify": broker.ca, "retry_total": 0}
    if request.param:
        options["api_version"] = request.param
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options) as admin:
        yield admin


def shown(entity, expected):
    return {name: getattr(entity, name) for name in expected}


def access_rule(name="reader", primary=KEY, rights=(AccessRights.LISTEN,)):
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=list(rights),
        key_name=name,
        primary_key=primary,
        secondary_key=KEY,
    )


@pytest.mark.parametrize(
    "create, known",
    [
        (ServiceBusAdministrationClient.create_queue, {*QUEUE, *FORWARDS, "authorization_rules"}),
        # What a topic holds is for the broker to say. The client takes the last one and sends it only with an update of
        # what it has read; see below.
        (
            ServiceBusAdministrationClient.create_topic,
            {*TOPIC, "authorization_rules", "size_in_bytes", "filtering_messages_before_publishing"},
        ),
        (ServiceBusAdministrationClient.create_subscription, {*SUBSCRIPTION, *FORWARDS}),
    ],
    ids=["queue", "topic", "subscription"],
)
def test_the_tables_leave_no_property_out(create, known):
    names = {"self", "kwargs", "queue_name", "topic_name", "subscription_name"}
    assert set(inspect.signature(create).parameters) - names == known


def test_every_property_of_a_queue_comes_back(admin):
    admin.create_queue("target")
    for name, table in (("plain", QUEUE), ("detecting", DETECTING_QUEUE)):
        assert shown(admin.create_queue(name, **table), table) == table
        assert shown(admin.get_queue(name), table) == table
        admin.update_queue(admin.get_queue(name))
        assert shown(admin.get_queue(name), table) == table, "what was read can be written back"
    extra = {"forward_to": "target", "forward_dead_lettered_messages_to": "target"}
    created = admin.create_queue("q", authorization_rules=[access_rule()], **QUEUE, **extra)
    # K-23: also the time after which it would be deleted, did it not forward.
    for queue in (created, admin.get_queue("q"), [q for q in admin.list_queues() if q.name == "q"][0]):
        assert shown(queue, QUEUE) == QUEUE
        assert queue.forward_to.endswith("target") and queue.forward_dead_lettered_messages_to.endswith("target")
        assert queue.status == "Active" and queue.availability_status == "Available"
        (rule,) = queue.authorization_rules
        assert (rule.key_name, rule.primary_key, rule.secondary_key) == ("reader", KEY, KEY)
        assert [str(right.value if hasattr(right, "value") else right) for right in rule.rights] == ["Listen"]


def test_a_queue_is_updated_as_a_whole(admin):
    queue = admin.create_queue("q", **(QUEUE | {"requires_session": False}))
    queue.lock_duration = timedelta(seconds=30)
    queue.status = "SendDisabled"
    queue.default_message_time_to_live = timedelta(days=2)
    admin.update_queue(queue)
    read = admin.get_queue("q")
    assert (read.lock_duration, read.status) == (timedelta(seconds=30), "SendDisabled")
    assert read.default_message_time_to_live == timedelta(days=2)
    assert read.user_metadata == COMMON["user_metadata"]
    admin.update_queue(read, max_delivery_count=3)
    assert admin.get_queue("q").max_delivery_count == 3

    read.requires_session = True
    with pytest.raises(HttpResponseError) as refused:
        admin.update_queue(read)
    assert refused.value.status_code == 400
    read.name = "missing"
    read.requires_session = False
    with pytest.raises(ResourceNotFoundError):
        admin.update_queue(read)


def test_defaults_are_those_of_the_service(admin):
    queue = admin.create_queue("q")
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.max_delivery_count == 10
    assert queue.max_size_in_megabytes == 1024
    assert queue.duplicate_detection_history_time_window == timedelta(minutes=10)
    assert queue.enable_batched_operations is True
    assert queue.requires_session is False
    assert queue.default_message_time_to_live > timedelta(days=10_000_000)
    admin.update_queue(queue)
    assert admin.get_queue("q").default_message_time_to_live == queue.default_message_time_to_live


@pytest.mark.parametrize(
    "wrong",
    [
        {"lock_duration": timedelta(minutes=6)},
        {"max_delivery_count": 0},
        {"auto_delete_on_idle": timedelta(minutes=1)},
        {"duplicate_detection_history_time_window": timedelta(days=8)},
        {"max_size_in_megabytes": 1000},
        {"user_metadata": "x" * 1025},
        {"forward_to": "nowhere"},
        {"requires_duplicate_detection": True, "enable_express": True},
    ],
)
def test_a_value_outside_its_range_is_refused(admin, wrong):
    with pytest.raises(HttpResponseError) as refused:
        admin.create_queue("q", **wrong)
    assert refused.value.status_code == 400
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("q")


def test_runtime_properties_of_everything(admin):
    admin.create_queue("q")
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    for queue in (admin.get_queue_runtime_properties("q"), list(admin.list_queues_runtime_properties())[-1]):
        assert (queue.total_message_count, queue.size_in_bytes, queue.transfer_message_count) == (0, 0, 0)
        assert isinstance(queue.created_at_utc, datetime) and isinstance(queue.updated_at_utc, datetime)
    for topic in (admin.get_topic_runtime_properties("t"), *admin.list_topics_runtime_properties()):
        assert (topic.subscription_count, topic.scheduled_message_count, topic.size_in_bytes) == (1, 0, 0)
    for subscription in (
        admin.get_subscription_runtime_properties("t", "s"),
        *admin.list_subscriptions_runtime_properties("t"),
    ):
        assert (subscription.total_message_count, subscription.active_message_count) == (0, 0)
        assert subscription.dead_letter_message_count == 0


def test_every_property_of_a_topic_comes_back(admin):
    assert shown(admin.create_topic("express", **EXPRESS_TOPIC), EXPRESS_TOPIC) == EXPRESS_TOPIC
    admin.update_topic(admin.get_topic("express"))
    assert shown(admin.get_topic("express"), EXPRESS_TOPIC) == EXPRESS_TOPIC
    admin.delete_topic("express")
    created = admin.create_topic("t", authorization_rules=[access_rule()], **TOPIC)
    for topic in (created, admin.get_topic("t"), *admin.list_topics()):
        assert shown(topic, TOPIC) == TOPIC
        assert topic.authorization_rules[0].key_name == "reader"
    created.status = "SendDisabled"
    created.max_size_in_megabytes = 3072
    admin.update_topic(created)
    assert (admin.get_topic("t").status, admin.get_topic("t").max_size_in_megabytes) == ("SendDisabled", 3072)
    admin.delete_topic("t")
    with pytest.raises(ResourceNotFoundError):
        admin.get_topic("t")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_topic("t")


FILTERING_TOPIC = """<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><TopicDescription
    xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">
    <FilteringMessagesBeforePublishing>true</FilteringMessagesBeforePublishing>
    <EnableSubscriptionPartitioning>true</EnableSubscriptionPartitioning></TopicDescription></content></entry>"""


def test_what_the_client_does_not_create_it_reads_and_writes_back(admin, broker):
    # H-31
    def asked(method, body=None):
        address = f"http://localhost:{broker.port}/t"
        headers = {"Authorization": token(f"http://localhost:{broker.port}/", EMULATOR_KEY)}
        request = urllib.request.Request(address, body and body.encode(), headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()

    asked("PUT", FILTERING_TOPIC)
    topic = admin.get_topic("t")
    assert topic.filtering_messages_before_publishing is True
    admin.update_topic(topic, user_metadata="changed")
    topic = admin.get_topic("t")
    assert (topic.filtering_messages_before_publishing, topic.user_metadata) == (True, "changed")
    assert "<EnableSubscriptionPartitioning>true<" in asked("GET")


def test_every_property_of_a_subscription_comes_back(admin):
    admin.create_topic("t")
    admin.create_queue("target")
    lenient = admin.create_subscription("t", "lenient", **LENIENT_SUBSCRIPTION)
    admin.update_subscription("t", lenient)
    assert shown(admin.get_subscription("t", "lenient"), LENIENT_SUBSCRIPTION) == LENIENT_SUBSCRIPTION
    admin.delete_subscription("t", "lenient")
    forwards = dict.fromkeys(FORWARDS, "target")
    created = admin.create_subscription("t", "s", **forwards, **SUBSCRIPTION)
    # K-23: also the time after which it would be deleted, did it not forward.
    for subscription in (created, admin.get_subscription("t", "s"), *admin.list_subscriptions("t")):
        assert shown(subscription, SUBSCRIPTION) == SUBSCRIPTION
        assert subscription.forward_to.endswith("target")
        assert subscription.forward_dead_lettered_messages_to.endswith("target")
    created.max_delivery_count = 20
    created.forward_to = None
    admin.update_subscription("t", created)
    read = admin.get_subscription("t", "s")
    assert (read.max_delivery_count, read.forward_to) == (20, None)
    with pytest.raises(ResourceExistsError):
        admin.create_subscription("t", "S")
    admin.delete_subscription("t", "s")
    with pytest.raises(ResourceNotFoundError):
        admin.get_subscription("t", "s")
    with pytest.raises(ResourceNotFoundError):
        admin.create_subscription("nowhere", "s")


PROPERTIES = {
    "text": "x",
    "number": 7,
    "fraction": 1.5,
    "flag": True,
    "when": datetime(2020, 7, 5, 11, 12, 13),
    "long": timedelta(days=1, hours=2),
}


def test_every_kind_of_rule_comes_back(admin):
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    (default,) = admin.list_rules("t", "s")
    assert default.name == "$Default" and isinstance(default.filter, TrueRuleFilter)
    correlation = CorrelationRuleFilter(
        correlation_id="c", message_id="m", to="t", reply_to="r", label="l", session_id="s",
        reply_to_session_id="rs", content_type="ct", properties=PROPERTIES,
    )
    sql = SqlRuleFilter("user.[a.b] = @text", parameters=PROPERTIES)
    action = SqlRuleAction("SET x = @number", parameters=PROPERTIES)
    admin.create_rule("t", "s", "correlation", filter=correlation)
    admin.create_rule("t", "s", "sql", filter=sql, action=action)
    admin.create_rule("t", "s", "true", filter=TrueRuleFilter())
    admin.create_rule("t", "s", "false", filter=FalseRuleFilter())

    read = admin.get_rule("t", "s", "correlation").filter
    for name in ("correlation_id", "message_id", "to", "reply_to", "label", "session_id", "reply_to_session_id", "content_type"):
        assert getattr(read, name) == getattr(correlation, name)
    assert {key: read.properties[key] for key in ("text", "number", "fraction", "flag", "long")} == {
        key: PROPERTIES[key] for key in ("text", "number", "fraction", "flag", "long")
    }
    assert read.properties["when"].replace(tzinfo=None) == PROPERTIES["when"]
    read = admin.get_rule("t", "s", "sql")
    assert (read.filter.sql_expression, read.action.sql_expression) == (sql.sql_expression, action.sql_expression)
    assert read.filter.parameters["number"] == 7 and read.action.parameters["flag"] is True
    assert isinstance(admin.get_rule("t", "s", "false").filter, FalseRuleFilter)
    assert [rule.name for rule in admin.list_rules("t", "s")] == ["$Default", "correlation", "false", "sql", "true"]

    rule = admin.get_rule("t", "s", "true")
    rule.filter = SqlRuleFilter("a = 1")
    rule.action = SqlRuleAction("SET a = 2")
    admin.update_rule("t", "s", rule)
    assert admin.get_rule("t", "s", "true").filter.sql_expression == "a = 1"
    with pytest.raises(ResourceExistsError):
        admin.create_rule("t", "s", "TRUE")
    admin.delete_rule("t", "s", "true")
    with pytest.raises(ResourceNotFoundError):
        admin.get_rule("t", "s", "true")


def test_the_namespace_describes_itself(admin):
    properties = admin.get_namespace_properties()
    assert properties.name == "default"
    assert properties.messaging_sku == "Premium"
    assert properties.namespace_type == "Messaging"


def test_lists_of_more_than_a_page_are_whole(admin):
    names = [f"q{number:03}" for number in range(103)]
    for name in names:
        admin.create_queue(name)
    assert [queue.name for queue in admin.list_queues()] == [*sorted([*names, "orders"])]


def test_names_with_a_slash_and_of_any_case(admin):
    admin.create_queue("Sales/Orders.v1")
    assert admin.get_queue("sales/orders.V1").max_delivery_count == 10
    assert "Sales/Orders.v1" in [queue.name for queue in admin.list_queues()]
    with pytest.raises(ResourceExistsError):
        admin.create_topic("SALES/orders.v1")
    admin.delete_queue("sales/orders.v1")


def test_keys_of_a_queue_are_rotated(admin, broker):
    queue = admin.create_queue("q", authorization_rules=[access_rule(rights=(AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN))])

    def looks_with(key):
        string = f"Endpoint=sb://127.0.0.1:{broker.port};SharedAccessKeyName=reader;SharedAccessKey={key}"
        options = {"connection_verify": broker.ca, "retry_total": 0}
        with ServiceBusAdministrationClient.from_connection_string(string, **options) as own:
            return own.get_queue("q").name == "q"

    assert looks_with(KEY)
    queue.authorization_rules[0].primary_key = KEY.replace("c3Vj", "YWJj")
    queue.authorization_rules[0].secondary_key = ""
    admin.update_queue(queue)
    rule = admin.get_queue("q").authorization_rules[0]
    assert (rule.primary_key, rule.secondary_key) == (KEY.replace("c3Vj", "YWJj"), KEY)
    assert looks_with(rule.primary_key) and looks_with(KEY)


def test_everything_is_there_after_sigkill(admin, broker):
    admin.create_topic("t", **TOPIC)
    admin.create_subscription("t", "s", **SUBSCRIPTION)
    admin.create_rule("t", "s", "r", filter=SqlRuleFilter("a = 1"))
    admin.create_queue("q", authorization_rules=[access_rule()], **QUEUE)
    broker.restart()
    options = {"connection_verify": broker.ca, "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options) as again:
        assert shown(again.get_topic("t"), TOPIC) == TOPIC
        assert shown(again.get_subscription("t", "s"), SUBSCRIPTION) == SUBSCRIPTION
        assert again.get_rule("t", "s", "r").filter.sql_expression == "a = 1"
        assert shown(again.get_queue("q"), QUEUE) == QUEUE
        assert again.get_queue("q").authorization_rules[0].primary_key == KEY


def test_a_rule_that_is_no_sql_is_refused_with_the_place(admin):
    admin.create_topic("t")
    admin.create_subscription("t", "s")
    for filter, action, place in (
        (SqlRuleFilter("a = = 1"), None, "SqlFilter' is invalid: at character 5"),
        (SqlRuleFilter("a = 'open"), None, "SqlFilter' is invalid: at character 5"),
        (SqlRuleFilter("a = 1"), SqlRuleAction("SET a"), "SqlRuleAction' is invalid: at character 6"),
    ):
        with pytest.raises(HttpResponseError) as refused:
            admin.create_rule("t", "s", "r", filter=filter, action=action)
        assert refused.value.status_code == 400
        assert place in str(refused.value)
    with pytest.raises(ResourceNotFoundError):
        admin.get_rule("t", "s", "r")
