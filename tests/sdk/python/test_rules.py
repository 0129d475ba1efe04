"""Rules of a message's life that only show from end to end: properties, duplicates, forwarding, sessions."""

import datetime
import uuid

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from client import WAIT_SECONDS

DEAD_LETTERS = ServiceBusSubQueue.DEAD_LETTER


@pytest.fixture
def admin(broker):
    options = {"connection_verify": broker.ca, "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options) as admin:
        yield admin


def peeked(client, queue, sub_queue=None):
    with client.connect() as connection:
        with connection.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
            return receiver.peek_messages(100, sequence_number=1)


# S-1, S-2, S-5: `To` names a queue that exists, and nothing comes of it.
def test_every_property_that_a_sender_sets_comes_back(client, admin):
    admin.create_queue("elsewhere")
    application = {
        "text": "ş",
        "number": 7,
        "real": 0.5,
        "truth": True,
        "id": uuid.UUID(int=7),
        "time": datetime.datetime(2030, 1, 2, tzinfo=datetime.timezone.utc),
    }
    sent = {
        "content_type": "application/x-menu",
        "correlation_id": "correlation",
        "subject": "subject",
        "message_id": "id",
        "partition_key": "session",
        "reply_to": "replies",
        "reply_to_session_id": "reply session",
        "session_id": "session",
        "time_to_live": datetime.timedelta(minutes=3),
        "to": "elsewhere",
    }
    body = bytes(range(256))
    client.send(ServiceBusMessage(body, application_properties=application, **sent))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        assert {name: getattr(message, name) for name in sent} == sent
        assert b"".join(message.body) == body
        received = {k.decode(): v for k, v in message.application_properties.items()}
        assert received["text"] == b"\xc5\x9f" or received["text"] == "ş"
        assert (received["number"], received["real"], received["truth"]) == (7, 0.5, True)
        assert received["id"] == application["id"]
        receiver.complete_message(message)
    assert peeked(client, "elsewhere") == []


# S-2: the time for which a message is scheduled is told too.
def test_the_time_of_a_scheduled_message_comes_back(client):
    due = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(hours=1)
    client.send(ServiceBusMessage("later", scheduled_enqueue_time_utc=due))
    (message,) = peeked(client, "orders")
    assert message.scheduled_enqueue_time_utc == due


# S-2: the key that chooses a partition on the way has no name in this SDK.
def test_the_partition_key_of_the_way_comes_back(client):
    sent = ServiceBusMessage("by another way")
    sent.raw_amqp_message.annotations = {"x-opt-via-partition-key": "way"}
    client.send(sent)
    (message,) = peeked(client, "orders")
    assert message.raw_amqp_message.annotations[b"x-opt-via-partition-key"] == b"way"


# S-15, S-37, S-160, S-164
def test_a_duplicate_is_accepted_and_dropped_also_after_kill(broker, client, admin):
    admin.create_queue("once", requires_duplicate_detection=True)
    first, second = (ServiceBusMessage(n, message_id=n) for n in ("one", "two"))
    client.send(first, first, second, queue="once")
    broker.restart()
    client.send(ServiceBusMessage("another body", message_id="one"), queue="once")
    client.send(ServiceBusMessage("three", message_id="three"), queue="once")
    assert [(str(m), m.sequence_number) for m in peeked(client, "once")] == [("one", 1), ("two", 2), ("three", 3)]


# S-48
def test_a_duplicate_that_is_scheduled_gets_a_number_that_nothing_has(client, admin):
    admin.create_queue("once", requires_duplicate_detection=True)
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    with client.connect() as connection, connection.get_queue_sender("once") as sender:
        numbers = [sender.schedule_messages(ServiceBusMessage("x", message_id="one"), later) for _ in range(2)]
    assert numbers == [[1], [2]]
    assert [m.sequence_number for m in peeked(client, "once")] == [1]


# S-36, S-170, S-172, S-177
def test_a_queue_forwards_what_it_is_sent(broker, client, admin):
    admin.create_queue("entry", forward_to="orders")
    client.send(ServiceBusMessage("direct"))
    client.send(ServiceBusMessage("forwarded", message_id="id", subject="s"), queue="entry")
    broker.restart()
    direct, forwarded = peeked(client, "orders")
    assert (str(forwarded), forwarded.message_id, forwarded.subject) == ("forwarded", "id", "s")
    assert (forwarded.sequence_number, forwarded.enqueued_sequence_number) == (2, 1)
    assert direct.enqueued_sequence_number is None
    with client.connect() as connection:
        with pytest.raises(ServiceBusError, match="forwards them"):
            with connection.get_queue_receiver("entry") as receiver:
                receiver.receive_messages(max_wait_time=WAIT_SECONDS)


# S-109, S-173
def test_a_message_that_was_forwarded_too_often_is_a_dead_letter(client, admin):
    for number in range(4, -1, -1):
        admin.create_queue(f"hop-{number}", forward_to="orders" if number == 4 else f"hop-{number + 1}")
    client.send(ServiceBusMessage("weary"), queue="hop-0")
    assert peeked(client, "orders") == []
    (letter,) = peeked(client, "hop-4", DEAD_LETTERS)
    assert letter.dead_letter_reason == "MaxTransferHopCountExceeded"
    assert letter.dead_letter_error_description == (
        "The maximum number of allowed hops when forwarding between queues has been exceeded. This value is set to 4."
    )


# S-112
def test_dead_letters_are_forwarded_with_where_they_come_from(client, admin):
    admin.create_queue("ward", forward_dead_lettered_messages_to="orders")
    client.send(ServiceBusMessage("ill"), queue="ward")
    with client.connect() as connection:
        with connection.get_queue_receiver("ward") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
            receiver.dead_letter_message(message, reason="why", error_description="because")
        with connection.get_queue_receiver("orders") as receiver:
            (letter,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
    assert (letter.dead_letter_source, letter.dead_letter_reason) == ("ward", "why")
    assert letter.dead_letter_error_description == "because"


# S-20
def test_a_session_queue_refuses_a_message_without_a_session(client, admin):
    admin.create_queue("sessions", requires_session=True)
    with pytest.raises(ServiceBusError, match="The SessionId was not set on a message"):
        client.send(ServiceBusMessage("lost"), queue="sessions")
