"""Topics through the official SDK: copies, their lives, schedules, filters, actions."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.management import ServiceBusAdministrationClient
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
