"""Topics through the official SDK: copies, their lives, schedules, filters, actions."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)
from client import WAIT_SECONDS

DEAD_LETTERS = ServiceBusSubQueue.DEAD_LETTER


@pytest.fixture
def admin(broker):
    options = {"connection_verify": broker.ca, "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options) as admin:
        yield admin


@pytest.fixture
def news(admin):
    """A topic with two subscriptions that get everything."""
    admin.create_topic("news")
    for name in ("ada", "bo"):
        admin.create_subscription("news", name)


def publish(client, *messages):
    with client.connect() as connection, connection.get_topic_sender("news") as sender:
        for message in messages:
            sender.send_messages(message)


def receive(client, subscription, most=10, sub_queue=None):
    """What a subscription has, received and deleted."""
    with client.connect() as connection:
        receiver = connection.get_subscription_receiver(
            "news", subscription, sub_queue=sub_queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        )
        with receiver:
            received = []
            while len(received) < most:
                some = receiver.receive_messages(most - len(received), max_wait_time=WAIT_SECONDS)
                if not some:
                    break
                received += some
            return received


def peeked(client, subscription, sub_queue=None):
    with client.connect() as connection:
        with connection.get_subscription_receiver("news", subscription, sub_queue=sub_queue) as receiver:
            return receiver.peek_messages(100, sequence_number=1)


# S-36, S-180
def test_every_subscription_has_its_copy_also_after_kill(broker, client, news):
    publish(client, ServiceBusMessage("one", message_id="1", application_properties={"n": 1}), ServiceBusMessage("two"))
    assert [str(m) for m in receive(client, "ada", 1)] == ["one"]
    broker.restart()
    (second,) = receive(client, "ada", 1)
    assert (str(second), second.sequence_number, second.enqueued_sequence_number) == ("two", 2, 2)
    one, two = receive(client, "bo", 2)
    assert (str(one), one.message_id, one.application_properties, str(two)) == ("one", "1", {b"n": 1}, "two")
    assert peeked(client, "ada") == peeked(client, "bo") == []


# S-81, S-87, S-90, S-100, S-120, S-233, S-235
def test_a_copy_lives_as_a_message_of_a_queue_does(client, admin, news):
    publish(client, *(ServiceBusMessage(body) for body in ("done", "back", "dead", "aside")))
    with client.connect() as connection, connection.get_subscription_receiver("news", "ada") as receiver:
        done, back, dead, aside = sorted(
            receiver.receive_messages(4, max_wait_time=WAIT_SECONDS), key=lambda m: m.sequence_number
        )
        receiver.complete_message(done)
        receiver.abandon_message(back)
        receiver.dead_letter_message(dead, reason="why", error_description="because")
        receiver.defer_message(aside)
        (again,) = receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
        assert (str(again), again.delivery_count) == ("back", 1)
        receiver.renew_message_lock(again)
        receiver.complete_message(again)
        (deferred,) = receiver.receive_deferred_messages([aside.sequence_number])
        receiver.complete_message(deferred)
    (dead,) = peeked(client, "ada", DEAD_LETTERS)
    assert (str(dead), dead.dead_letter_reason, dead.dead_letter_error_description) == ("dead", "why", "because")
    ada, bo = (admin.get_subscription_runtime_properties("news", name) for name in ("ada", "bo"))
    assert (ada.active_message_count, ada.dead_letter_message_count, ada.total_message_count) == (0, 1, 1)
    assert (bo.active_message_count, bo.total_message_count) == (4, 4)
    assert admin.get_topic_runtime_properties("news").size_in_bytes > 0


# S-41, S-42, S-43, S-234
def test_a_scheduled_message_waits_at_the_topic(client, admin, news):
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    with client.connect() as connection, connection.get_topic_sender("news") as sender:
        first, second = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], later)
        sender.cancel_scheduled_messages(first)
    assert peeked(client, "ada") == []
    topic = admin.get_topic_runtime_properties("news")
    assert (topic.scheduled_message_count, topic.subscription_count) == (1, 2)
    with client.connect() as connection, connection.get_topic_sender("news") as sender:
        sender.cancel_scheduled_messages(second)
    assert admin.get_topic_runtime_properties("news").scheduled_message_count == 0


# S-180
def test_a_batch_and_a_large_message_are_copied_whole(broker, client, admin):
    admin.create_topic("news", max_message_size_in_kilobytes=4096)
    admin.create_subscription("news", "ada")
    with client.connect() as connection, connection.get_topic_sender("news") as sender:
        sender.send_messages([ServiceBusMessage(str(n)) for n in range(20)])
        sender.send_messages(ServiceBusMessage("x" * 2_000_000, application_properties={"size": "large"}))
    broker.restart()
    received = receive(client, "ada", 21)
    assert [str(m) for m in received[:20]] == [str(n) for n in range(20)]
    assert str(received[20]) == "x" * 2_000_000


def with_rules(admin, name, *rules, **options):
    """A subscription of the topic `news` that has these rules, each a name, a filter and perhaps an action."""
    admin.create_subscription("news", name, **options)
    admin.delete_rule("news", name, "$Default")
    for rule in rules:
        rule_name, rule_filter, *action = rule
        admin.create_rule("news", name, rule_name, filter=rule_filter, action=SqlRuleAction(action[0]) if action else None)


def found(client, name):
    return [str(m) for m in peeked(client, name)]


# S-185, S-187, S-190, S-193, S-194, S-196, S-198, S-202
def test_filters_select_by_what_clients_send(client, admin):
    admin.create_topic("news")
    with_rules(admin, "label", ("r", CorrelationRuleFilter(label="sport")))
    with_rules(admin, "typed", ("r", CorrelationRuleFilter(properties={"n": 7, "Is.Event": True})))
    with_rules(admin, "sql", ("r", SqlRuleFilter("color IN ('red', @other) AND n > 5", parameters={"@other": "blue"})))
    with_rules(admin, "like", ("r", SqlRuleFilter("sys.MessageId LIKE 'm-_' OR missing = 1")))
    with_rules(admin, "when", ("r", SqlRuleFilter("at > @then", parameters={"@then": datetime.datetime(2020, 1, 1)})))
    with_rules(admin, "none", ("r", FalseRuleFilter()))
    at = datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc)
    publish(
        client,
        ServiceBusMessage("1", subject="sport", message_id="m-1", application_properties={"color": "red", "n": 7}),
        ServiceBusMessage("2", application_properties={"n": 7, "is.event": True, "at": at}),
        ServiceBusMessage("3", message_id="m-33", application_properties={"color": "blue", "n": 5.5}),
        ServiceBusMessage("4", application_properties={"color": "red", "n": "7"}),
    )
    assert found(client, "label") == ["1"]
    assert found(client, "typed") == ["2"]
    assert found(client, "sql") == ["1", "3"]
    assert found(client, "like") == ["1"]
    assert found(client, "when") == ["2"]
    assert found(client, "none") == []


# S-182, S-186, S-203, S-205
def test_actions_change_copies_of_their_own(client, admin):
    admin.create_topic("news")
    with_rules(
        admin,
        "ada",
        ("plain", TrueRuleFilter()),
        ("also plain", SqlRuleFilter("n = 1")),
        ("paint", SqlRuleFilter("n = 1"), "SET color = 'red'; SET n = n + 1; SET sys.Label = 'painted'; REMOVE gone"),
    )
    properties = {"n": 1, "gone": "x", "kept": "y"}
    publish(client, ServiceBusMessage("one", subject="bare", application_properties=properties))
    plain, painted = receive(client, "ada", 2)
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    shown = lambda m: {text(k): text(v) for k, v in m.application_properties.items()}
    assert (plain.subject, shown(plain)) == ("bare", properties)
    assert painted.subject == "painted"
    assert shown(painted) == {"n": 2, "kept": "y", "color": "red", "RuleName": "paint"}
    assert (str(plain), str(painted), plain.enqueued_sequence_number) == ("one", "one", painted.enqueued_sequence_number)


# S-20, S-108, S-110, S-200
def test_a_copy_that_cannot_be_made_is_dead_lettered_with_the_reason(client, admin):
    admin.create_topic("news")
    with_rules(admin, "bad", ("r", SqlRuleFilter("n / 0 = 1")))
    with_rules(admin, "quiet", ("r", SqlRuleFilter("n / 0 = 1")), dead_lettering_on_filter_evaluation_exceptions=False)
    admin.create_subscription("news", "sessions", requires_session=True)
    admin.create_subscription("news", "well")
    publish(client, ServiceBusMessage("one", application_properties={"n": 1}))
    (bad,) = peeked(client, "bad", DEAD_LETTERS)
    assert (bad.dead_letter_reason, "division by zero" in bad.dead_letter_error_description) == ("FilterException", True)
    assert found(client, "quiet") == peeked(client, "quiet", DEAD_LETTERS) == []
    (homeless,) = peeked(client, "sessions", DEAD_LETTERS)
    assert homeless.dead_letter_reason == "Session id is null."
    assert found(client, "well") == ["one"]


# S-36, S-170, S-177
def test_topics_forward_and_are_forwarded_to(broker, client, admin):
    admin.create_topic("news")
    admin.create_queue("entry", forward_to="news")
    admin.create_subscription("news", "out", forward_to="orders")
    with_rules(admin, "red", ("r", SqlRuleFilter("color = 'red'")))
    for color in ("red", "blue"):
        client.send(ServiceBusMessage(color, application_properties={"color": color}), queue="entry")
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        received = []
        while len(received) < 2:
            received += receiver.receive_messages(2, max_wait_time=WAIT_SECONDS)
        assert [(str(m), m.enqueued_sequence_number) for m in received] == [("red", 1), ("blue", 2)]
    assert found(client, "red") == ["red"]


# S-160, S-163, S-177, S-186
def test_what_an_action_sets_counts_where_the_copy_is_forwarded_to(broker, client, admin):
    admin.create_queue("once", requires_duplicate_detection=True)
    admin.create_queue("grouped", requires_session=True)
    admin.create_queue("later")
    admin.create_topic("news")
    due = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(hours=1)
    actions = {
        "once": SqlRuleAction("SET sys.MessageId = 'same'"),
        "grouped": SqlRuleAction("SET sys.SessionId = 'ours'"),
        "later": SqlRuleAction("SET sys.ScheduledEnqueueTimeUtc = @when", parameters={"@when": due}),
    }
    for name, action in actions.items():
        admin.create_subscription("news", name)
        admin.delete_rule("news", name, "$Default")
        admin.create_rule("news", name, "r", filter=TrueRuleFilter(), action=action)
        subscription = admin.get_subscription("news", name)
        subscription.forward_to = name
        admin.update_subscription("news", subscription)
    publish(client, *(ServiceBusMessage(text, message_id=text) for text in ("one", "two")))
    client.send(ServiceBusMessage("three", message_id="same"), queue="once")
    for name in actions:
        while admin.get_subscription_runtime_properties("news", name).total_message_count:
            pass
    broker.restart()
    with client.connect() as connection:
        with connection.get_queue_receiver("once") as receiver:
            (only,) = receiver.peek_messages(10)
            assert (only.message_id, only.sequence_number) == ("same", 1)
        with connection.get_queue_receiver("grouped", session_id="ours") as receiver:
            assert [str(message) for message in receiver.peek_messages(10)] == ["one", "two"]
        with connection.get_queue_receiver("later") as receiver:
            waiting = receiver.peek_messages(10)
            assert [(str(message), message.state.name) for message in waiting] == [
                ("one", "SCHEDULED"),
                ("two", "SCHEDULED"),
            ]
            assert waiting[0].scheduled_enqueue_time_utc == due


# S-160, S-177
def test_a_forwarded_duplicate_is_dropped_where_it_arrives(client, admin):
    admin.create_queue("once", requires_duplicate_detection=True)
    admin.create_queue("entry", forward_to="once")
    for queue, text in (("entry", "a"), ("once", "b"), ("entry", "b"), ("entry", "a"), ("once", "a"), ("entry", "c")):
        client.send(ServiceBusMessage(text, message_id=text), queue=queue)
        while admin.get_queue_runtime_properties("entry").total_message_count:
            pass
    with client.connect() as connection, connection.get_queue_receiver("once") as receiver:
        peeked = receiver.peek_messages(10)
        assert [(str(message), message.sequence_number) for message in peeked] == [("a", 1), ("b", 2), ("c", 3)]
