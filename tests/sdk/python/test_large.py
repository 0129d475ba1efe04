"""Messages far above a frame, through the official SDK."""

import random

import pytest
from azure.servicebus import ServiceBusMessage
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
