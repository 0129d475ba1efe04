"""What files declare: topics, namespaces, the emulator's own file, and a reload that leaves messages alone."""

import pathlib
import signal
import socket
import time
from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
    TrueRuleFilter,
)
from client import WAIT_SECONDS, Client
from otobus import EMULATOR_KEY, POLICY

DEFINITIONS = """
[[queue]]
name = "orders"
forward_to = "archive"
[[queue]]
name = "archive"
[[topic]]
name = "news"
[[topic.subscription]]
name = "local"
[[topic.subscription.rule]]
name = "near"
correlation = { label = "local", properties = { miles = 5 } }
[[topic.subscription.rule]]
name = "loud"
sql = "volume > 3"
[[namespace]]
name = "shop"
[[namespace.queue]]
name = "sales"
"""

SAMPLE = pathlib.Path(__file__).with_name("emulator.config.json")


def administration(broker, connection_string=None):
    options = {"connection_verify": broker.ca, "retry_total": 0}
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string or broker.connection_string(), **options
    )


def test_topics_and_rules_of_the_file_are_there(unstarted_broker):
    (unstarted_broker.folder / "otobus.toml").write_text(DEFINITIONS)
    unstarted_broker.start()
    with administration(unstarted_broker) as admin:
        assert admin.get_queue("orders").forward_to == "archive"
        near, loud = admin.get_rule("news", "local", "near"), admin.get_rule("news", "local", "loud")
        assert isinstance(near.filter, CorrelationRuleFilter) and near.filter.properties == {"miles": 5}
        assert isinstance(loud.filter, SqlRuleFilter)
        # What the file declares is as the file says, from each start on; what it does not declare is left alone.
        admin.delete_rule("news", "local", "loud")
        admin.create_rule("news", "local", "quiet", filter=SqlRuleFilter("volume < 3"))
        changed = admin.get_queue("archive")
        changed.max_delivery_count = 7
        admin.update_queue(changed)
        admin.create_queue("undeclared", max_delivery_count=7)
    unstarted_broker.restart()
    with administration(unstarted_broker) as admin:
        assert {rule.name for rule in admin.list_rules("news", "local")} == {"near", "loud", "quiet"}
        assert admin.get_queue("archive").max_delivery_count == 10
        assert admin.get_queue("undeclared").max_delivery_count == 7


def test_a_namespace_is_reached_by_the_first_label_of_its_host(unstarted_broker, monkeypatch):
    (unstarted_broker.folder / "otobus.toml").write_text(DEFINITIONS)
    unstarted_broker.start()
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: resolve("127.0.0.1" if "shop." in str(host).lower() else host, *rest, **more),
    )
    host = f"shop.servicebus.windows.net:{unstarted_broker.port}"
    string = f"Endpoint=sb://{host};SharedAccessKeyName={POLICY};SharedAccessKey={EMULATOR_KEY}"
    with administration(unstarted_broker, string) as admin:
        assert [queue.name for queue in admin.list_queues()] == ["sales"]
        assert admin.get_namespace_properties().name == "shop"
    with administration(unstarted_broker) as admin:
        assert [queue.name for queue in admin.list_queues()] == ["archive", "orders"]
    # Over AMQP by the name in the open frame, whatever its case.
    upper = string.replace("shop.", "Shop.")
    options = {"custom_endpoint_address": f"sb://localhost:{unstarted_broker.port}", "connection_verify": unstarted_broker.ca}
    with ServiceBusClient.from_connection_string(upper, retry_total=0, **options) as shop:
        with shop.get_queue_sender("sales") as sender:
            sender.send_messages(ServiceBusMessage("sold"))
        with pytest.raises(ServiceBusError), shop.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("of another namespace"))
    with administration(unstarted_broker, string) as admin:
        assert admin.get_queue_runtime_properties("sales").active_message_count == 1


def test_without_a_configuration_the_emulator_s_entities_are_there_from_the_first_start(unstarted_broker):
    unstarted_broker.config.unlink()
    unstarted_broker.config = None
    unstarted_broker.start()
    with administration(unstarted_broker) as admin:
        assert [queue.name for queue in admin.list_queues()] == ["queue.1"]
        assert [topic.name for topic in admin.list_topics()] == ["topic.1"]
        names = [each.name for each in admin.list_subscriptions("topic.1")]
        assert names == ["subscription.1", "subscription.2", "subscription.3", "subscription.4"]
        by_type = admin.get_rule("topic.1", "subscription.1", "app-prop-filter-1").filter
        assert by_type.content_type == "application/json"
        admin.delete_queue("queue.1")
    # A directory that was used before is left as it is.
    unstarted_broker.restart()
    with administration(unstarted_broker) as admin:
        assert list(admin.list_queues()) == []


# H-124
def test_the_emulator_s_file_is_taken_as_it_is(unstarted_broker):
    unstarted_broker.config = unstarted_broker.folder / "Config.json"
    unstarted_broker.config.write_bytes(SAMPLE.read_bytes())
    unstarted_broker.start()
    hour, minute, window = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=20)
    with administration(unstarted_broker) as admin:
        assert [queue.name for queue in admin.list_queues()] == ["queue.1"]
        assert [topic.name for topic in admin.list_topics()] == ["topic.1"]
        queue, topic = admin.get_queue("queue.1"), admin.get_topic("topic.1")
        for entity in (queue, topic):
            assert entity.default_message_time_to_live == hour
            assert entity.duplicate_detection_history_time_window == window
            assert entity.requires_duplicate_detection is False
        subscriptions = list(admin.list_subscriptions("topic.1"))
        assert [each.name for each in subscriptions] == [f"subscription.{number}" for number in (1, 2, 3, 4)]
        for entity in (queue, *subscriptions):
            assert (entity.lock_duration, entity.max_delivery_count) == (minute, 3)
            assert (entity.forward_to, entity.forward_dead_lettered_messages_to) == (None, None)
            assert (entity.requires_session, entity.dead_lettering_on_message_expiration) == (False, False)
        rules = {each.name: list(admin.list_rules("topic.1", each.name)) for each in subscriptions}
        (system,), (own,), (default,), (sql,) = rules.values()
        assert system.name == "by-system-properties" and vars(system.filter) == {
            "content_type": "text/plain", "correlation_id": "correlation", "label": "label", "message_id": "message",
            "reply_to": "answers", "reply_to_session_id": "answers-session", "session_id": "session",
            "to": "http://target//path", "properties": system.filter.properties,
        }
        assert own.filter.properties == {"colour": "red"}
        assert default.name == "$Default" and isinstance(default.filter, TrueRuleFilter)
        assert sql.filter.sql_expression == "sys.MessageId = '42' AND colour = 'red'"
        assert sql.action.sql_expression == "SET sys.To = 'elsewhere'"


def test_a_reload_changes_definitions_and_leaves_messages_and_connections(broker, client):
    with client.connect() as connection, connection.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("kept"))
        (broker.folder / "otobus.toml").write_text(
            '[[queue]]\nname = "orders"\nmax_delivery_count = 4\n[[queue]]\nname = "more"\n'
        )
        broker.process.send_signal(signal.SIGHUP)
        with administration(broker) as admin:
            deadline = time.monotonic() + 30
            while "more" not in [queue.name for queue in admin.list_queues()]:
                assert time.monotonic() < deadline, broker.log.read_text()
            assert admin.get_queue("orders").max_delivery_count == 4
        sender.send_messages(ServiceBusMessage("and on"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        received = []
        while len(received) < 2:
            messages = receiver.receive_messages(max_message_count=2, max_wait_time=WAIT_SECONDS)
            assert messages
            received += [str(message) for message in messages]
    assert received == ["kept", "and on"]


# S-17, S-270
def test_a_tier_of_the_file_holds_messages_to_its_size(unstarted_broker):
    broker = unstarted_broker
    broker.config.write_text('tier = "standard"\n' + broker.config.read_text())
    broker.start()
    client = Client(broker)
    client.send(ServiceBusMessage("x" * 200_000))
    with pytest.raises(MessageSizeExceededError):
        client.send(ServiceBusMessage("x" * 300_000))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        assert len(receiver.peek_messages(5)) == 1


# S-261, S-270
def test_a_tier_of_the_command_line_wins(unstarted_broker, monkeypatch):
    broker = unstarted_broker
    broker.config.write_text('tier = "standard"\n' + broker.config.read_text())
    monkeypatch.setenv("OTOBUS_TIER", "basic")
    broker.start()
    options = {"connection_verify": broker.ca, "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options) as admin:
        admin.create_queue("plain")
        with pytest.raises(HttpResponseError, match="Basic"):
            admin.create_queue("sessions", requires_session=True)


def test_what_a_reload_no_longer_names_is_left_alone_with_its_messages(unstarted_broker):
    # H-102 for the rule: a file says nothing of keys, so those made by an administrator stay.
    broker = unstarted_broker
    both = '[[queue]]\nname = "orders"\n[[queue]]\nname = "spare"\n'
    (broker.folder / "otobus.toml").write_text(both)
    broker.start()
    client = Client(broker)
    client.send(ServiceBusMessage("kept"), queue="spare")
    rule = AuthorizationRule(
        key_name="reader", rights=[AccessRights.LISTEN], type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey", claim_value="None",
    )
    with administration(broker) as admin:
        orders = admin.get_queue("orders")
        orders.authorization_rules = [rule]
        admin.update_queue(orders)
        key = admin.get_queue("orders").authorization_rules[0].primary_key
        (broker.folder / "otobus.toml").write_text('[[queue]]\nname = "orders"\nmax_delivery_count = 5\n')
        broker.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while admin.get_queue("orders").max_delivery_count != 5:
            assert time.monotonic() < deadline, broker.log.read_text()
        assert [queue.name for queue in admin.list_queues()] == ["orders", "spare"]
        assert admin.get_queue("orders").authorization_rules[0].primary_key == key
    with client.connect() as connection, connection.get_queue_receiver("spare") as receiver:
        [message] = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        assert str(message) == "kept"
