"""Sending to a queue, receiving from it and settling, through the official SDK."""

from decimal import Decimal

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusAuthenticationError
from client import WAIT_SECONDS


def test_a_batch_arrives_whole_with_consecutive_numbers(client):
    with client.connect() as connection:
        with connection.get_queue_sender("orders") as sender:
            batch = sender.create_message_batch()
            for number in range(10):
                batch.add_message(ServiceBusMessage(f"item {number}", message_id=f"id-{number}"))
            sender.send_messages(batch)
        with connection.get_queue_receiver("orders") as receiver:
            received = []
            while len(received) < 10:
                messages = receiver.receive_messages(max_message_count=10, max_wait_time=WAIT_SECONDS)
                assert messages, f"only {len(received)} of 10 arrived"
                received += [(str(m), m.message_id, m.sequence_number) for m in messages]
    assert received == [(f"item {n}", f"id-{n}", n + 1) for n in range(10)]


def test_an_abandoned_message_comes_back_with_a_higher_delivery_count(client):
    client.send(ServiceBusMessage("again"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (first,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        receiver.abandon_message(first)
        (second,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        assert (str(second), second.sequence_number) == ("again", 1)
        assert second.delivery_count == first.delivery_count + 1
        assert second.lock_token != first.lock_token
        receiver.complete_message(second)
    assert client.receive_nothing()


def test_receive_and_delete_takes_the_message_for_good(broker, client):
    client.send(ServiceBusMessage("once"))
    with client.connect() as connection:
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with connection.get_queue_receiver("orders", receive_mode=mode) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
            assert str(message) == "once"
    broker.restart()
    assert client.receive_nothing()


def test_a_decimal_can_be_read_by_who_receives_peeks_and_receives_deferred(client):
    """A-10.2: this client writes decimals in one form and reads another."""
    properties = {"price": Decimal("1.2345"), "debt": Decimal("-7"), "count": 3}
    client.send(ServiceBusMessage("order", application_properties=properties))
    expected = {name.encode(): value for name, value in properties.items()}
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (peeked,) = receiver.peek_messages()
        (first,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        receiver.defer_message(first)
        (deferred,) = receiver.receive_deferred_messages(first.sequence_number)
        receiver.complete_message(deferred)
    assert [message.application_properties for message in (peeked, first, deferred)] == [expected] * 3


def test_what_is_settled_behind_a_detach_is_settled(client):
    """The detach does not close the link. Releases that wait for the answer are proved for by the tests of the door (A-11.25)."""
    client.send(ServiceBusMessage("once"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        receiver._handler._link.detach()
        receiver.complete_message(message)
    assert client.receive_nothing()


def test_three_hundred_sends_arrive_in_order(client):
    received = []
    with client.connect() as connection:
        with connection.get_queue_sender("orders") as sender:
            for number in range(300):
                sender.send_messages(ServiceBusMessage(str(number)))
        with connection.get_queue_receiver("orders") as receiver:
            while len(received) < 300:
                messages = receiver.receive_messages(max_message_count=100, max_wait_time=WAIT_SECONDS)
                assert messages, f"only {len(received)} of 300 arrived"
                for message in messages:
                    received.append((int(str(message)), message.sequence_number))
                    receiver.complete_message(message)
    assert received == [(number, number + 1) for number in range(300)]


def test_a_message_received_by_one_is_not_given_to_another_while_locked(client):
    client.send(ServiceBusMessage("mine"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        assert client.receive_nothing()
        receiver.complete_message(message)


# the Python SDK reports a missing entity as a failed put-token, and the reason only in its log.
def test_an_unknown_queue_is_refused_as_an_authentication_error(client, caplog):
    caplog.set_level("INFO", logger="azure.servicebus")
    with pytest.raises(ServiceBusAuthenticationError):
        client.send(ServiceBusMessage("lost"), queue="nowhere")
    assert "could not be found" in caplog.text


def test_a_wrong_key_is_refused(broker, client, caplog):
    caplog.set_level("INFO", logger="azure.servicebus")
    with pytest.raises(ServiceBusAuthenticationError):
        send_with(broker.connection_string(key="bm90IHRoZSBrZXk="))
    assert "Status code: 401" in caplog.text
    assert client.receive_nothing()


def test_an_unknown_policy_is_refused(broker, client, caplog):
    caplog.set_level("INFO", logger="azure.servicebus")
    with pytest.raises(ServiceBusAuthenticationError):
        send_with(broker.connection_string().replace("RootManageSharedAccessKey", "Nobody"))
    assert "Status code: 401" in caplog.text
    assert client.receive_nothing()


def send_with(connection_string):
    with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as connection:
        with connection.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("intruder"))
