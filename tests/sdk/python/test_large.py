"""Messages far above a frame, through the official SDK."""

import random

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from client import Client
from otobus import Otobus

MEBIBYTE = 1024 * 1024


@pytest.fixture
def large_client(tmp_path):
    """A client of a broker whose queue takes messages of 100 MB."""
    otobus = Otobus(tmp_path)
    (tmp_path / "otobus.toml").write_text('[[queue]]\nname = "orders"\nmax_message_size_in_kilobytes = 102400\n')
    otobus.start()
    yield Client(otobus)
    otobus.kill()
    print(otobus.log.read_text())


@pytest.mark.parametrize("body_bytes", [200_000, MEBIBYTE, 99 * MEBIBYTE])
def test_a_large_message_comes_back_as_it_was_sent(large_client, body_bytes):
    # S-17
    body = random.Random(body_bytes).randbytes(body_bytes)
    properties = {"kind": "large", "number": 7}
    large_client.send(ServiceBusMessage(body, message_id="large", application_properties=properties))
    with large_client.connect() as client, client.get_queue_receiver("orders") as receiver:
        [received] = receiver.receive_messages(max_wait_time=30)
        assert b"".join(received.body) == body
        assert received.message_id == "large"
        assert received.application_properties == {b"kind": b"large", b"number": 7}
        assert received.sequence_number == 1
        receiver.complete_message(received)
    assert large_client.receive_nothing()


@pytest.mark.parametrize("body_bytes", [200_000, 2 * MEBIBYTE])
def test_a_large_message_is_a_dead_letter_with_a_long_description(large_client, body_bytes):
    # S-104: both are read part by part, before and after a start, when nothing of them is in memory.
    body, text = random.Random(body_bytes).randbytes(body_bytes), "why " * 5_000
    large_client.send(ServiceBusMessage(body, message_id="large"))
    with large_client.connect() as client, client.get_queue_receiver("orders") as receiver:
        [received] = receiver.receive_messages(max_wait_time=30)
        receiver.dead_letter_message(received, reason="large", error_description=text)
    dead = {"queue_name": "orders", "sub_queue": ServiceBusSubQueue.DEAD_LETTER}
    for _ in range(2):
        with large_client.connect() as client, client.get_queue_receiver(**dead) as receiver:
            [received] = receiver.receive_messages(max_wait_time=30)
            [seen] = receiver.peek_messages(sequence_number=1)
            for message in (received, seen):
                assert b"".join(message.body) == body
                assert (message.dead_letter_reason, message.dead_letter_error_description) == ("large", text)
        large_client.broker.kill()
        large_client.broker.start()
