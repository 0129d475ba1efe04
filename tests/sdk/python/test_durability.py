"""What was accepted survives kill -9; what was completed stays away."""

from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusMessage
from client import WAIT_SECONDS

BODY = b"two coffees, no sugar \x00\xff"
PROPERTIES = {"table": 7, "vip": True, "guest": "Ayşe"}


def decoded(properties):
    """The SDK hands out keys and text as the bytes that came over the wire."""
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    return {text(key): text(value) for key, value in properties.items()}


def test_a_message_survives_sigkill_and_a_completed_one_stays_away(broker, client):
    before = datetime.now(timezone.utc)
    with client.connect() as connection, connection.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(BODY, message_id="order-1", application_properties=PROPERTIES))
        broker.kill()
    after = datetime.now(timezone.utc)

    broker.start()
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_message_count=5, max_wait_time=WAIT_SECONDS)
        assert b"".join(message.body) == BODY
        assert decoded(message.application_properties) == PROPERTIES
        assert message.message_id == "order-1"
        assert message.sequence_number == 1
        # The broker keeps milliseconds, so the time may be just under the sender's finer clock.
        assert before - timedelta(milliseconds=1) <= message.enqueued_time_utc <= after
        receiver.complete_message(message)
        broker.kill()

    broker.start()
    assert client.receive_nothing()


def test_every_accepted_message_is_there_once_and_in_order_after_sigkill(broker, client):
    with client.connect() as connection, connection.get_queue_sender("orders") as sender:
        for number in range(50):
            sender.send_messages(ServiceBusMessage(str(number)))
        broker.kill()

    broker.start()
    received = []
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        while len(received) < 50:
            messages = receiver.receive_messages(max_message_count=50, max_wait_time=WAIT_SECONDS)
            assert messages, f"only {len(received)} of 50 came back"
            for message in messages:
                received.append((str(message), message.sequence_number))
                receiver.complete_message(message)
    assert received == [(str(number), number + 1) for number in range(50)]
    assert client.receive_nothing()


def test_numbers_go_on_after_sigkill_and_are_never_given_twice(broker, client):
    client.send(ServiceBusMessage("first"))
    broker.restart()
    client.send(ServiceBusMessage("second"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        messages = []
        while len(messages) < 2:
            messages += receiver.receive_messages(max_message_count=2, max_wait_time=WAIT_SECONDS)
        assert [(str(m), m.sequence_number) for m in messages] == [("first", 1), ("second", 2)]
        assert messages[0].enqueued_time_utc <= messages[1].enqueued_time_utc


def test_a_clean_stop_ends_with_status_zero_and_loses_nothing(broker, client):
    client.send(ServiceBusMessage("kept"))
    assert broker.stop() == 0
    broker.start()
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        assert str(message) == "kept"
