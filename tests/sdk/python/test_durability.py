"""What was accepted survives kill -9; what was completed stays away."""

from datetime import datetime, timedelta, timezone

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
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


def test_more_dead_letters_with_long_descriptions_than_memory_would_hold_are_read_back_also_after_sigkill(
    broker, client
):
    # S-104: 900 descriptions of 30,000 characters, 27 MB.
    described = lambda number: f"{number}: " + chr(97 + number % 26) * 30_000
    numbers = range(900)
    with client.connect() as connection:
        with connection.get_queue_sender("orders") as sender:
            for start in range(0, 900, 100):
                sender.send_messages([ServiceBusMessage(str(number)) for number in range(start, start + 100)])
        with connection.get_queue_receiver("orders", prefetch_count=100) as receiver:
            left = len(numbers)
            while left:
                messages = receiver.receive_messages(max_message_count=100, max_wait_time=WAIT_SECONDS)
                assert messages, f"{left} did not come"
                for message in messages:
                    text = described(int(str(message)))
                    receiver.dead_letter_message(message, reason=f"why {message}", error_description=text)
                left -= len(messages)

    def check(message):
        assert message.dead_letter_reason == f"why {message}"
        assert message.dead_letter_error_description == described(int(str(message)))

    dead = {"queue_name": "orders", "sub_queue": ServiceBusSubQueue.DEAD_LETTER}
    with client.connect() as connection, connection.get_queue_receiver(**dead) as receiver:
        seen = receiver.peek_messages(max_message_count=20, sequence_number=440)
        assert [message.sequence_number for message in seen] == list(range(440, 440 + len(seen))) and seen
        for message in seen:
            check(message)
        broker.kill()

    broker.start()
    found = []
    with client.connect() as connection:
        with connection.get_queue_receiver(**dead, receive_mode="receiveanddelete") as receiver:
            while len(found) < len(numbers):
                messages = receiver.receive_messages(max_message_count=100, max_wait_time=WAIT_SECONDS)
                assert messages, f"only {len(found)} came back"
                for message in messages:
                    check(message)
                found += [int(str(message)) for message in messages]
    assert found == list(numbers)
