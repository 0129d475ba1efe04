"""Sending to one queue by way of another, with the SDK's own link and a property that it does not set by itself."""

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessagingEntityNotFoundError
from client import WAIT_SECONDS
from rest import Rest
from test_administration import administration

DESTINATION = "orders/elsewhere"


def by_way_of_orders(connection, destination=DESTINATION):
    """A sender attached to `orders` whose messages go to another queue; the claim for `orders` covers what is below it."""
    sender = connection.get_queue_sender("orders")
    create = sender._create_handler

    def create_with_destination(auth):
        create(auth)
        sender._handler._link_properties = {b"com.microsoft:transfer-destination-address": destination}

    sender._create_handler = create_with_destination
    return sender


def set_status(admin, status):
    queue = admin.get_queue(DESTINATION)
    queue.status = status
    admin.update_queue(queue)


def test_what_a_disabled_destination_does_not_take_survives_sigkill_in_the_transfer_dead_letter_queue(broker, client):
    # S-114, S-233
    with administration(broker) as admin:
        admin.create_queue(DESTINATION)
        with client.connect() as connection, by_way_of_orders(connection) as sender:
            sender.send_messages(ServiceBusMessage("there"))
            set_status(admin, "SendDisabled")
            sender.send_messages([ServiceBusMessage("lost"), ServiceBusMessage("gone")])
            broker.kill()
    broker.start()
    with administration(broker) as admin:
        on_the_way = admin.get_queue_runtime_properties("orders")
        assert on_the_way.transfer_dead_letter_message_count == 2
        assert (on_the_way.active_message_count, on_the_way.total_message_count) == (0, 2)
        assert admin.get_queue_runtime_properties(DESTINATION).active_message_count == 1
    with client.connect() as connection:
        lost = connection.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
        with lost:
            assert [str(message) for message in lost.peek_messages(max_message_count=5)] == ["lost", "gone"]
            messages = []
            while len(messages) < 2:
                more = lost.receive_messages(max_message_count=2, max_wait_time=WAIT_SECONDS)
                assert more, f"only {len(messages)} of 2 came back"
                messages += more
            assert messages[0].dead_letter_reason == "DestinationDisabled"
            assert messages[0].dead_letter_error_description
            for message in messages:
                lost.complete_message(message)
    with administration(broker) as admin:
        assert admin.get_queue_runtime_properties("orders").transfer_dead_letter_message_count == 0


def test_a_destination_that_is_not_there_is_not_found(broker, client):
    # S-114
    with client.connect() as connection, pytest.raises(MessagingEntityNotFoundError):
        with by_way_of_orders(connection, "orders/nowhere") as sender:
            sender.send_messages(ServiceBusMessage("lost"))


def test_the_transfer_dead_letter_queue_is_read_over_http(broker, client):
    # H-90, S-114
    lost, rest = "orders/$Transfer/$DeadLetterQueue", Rest(broker)
    with administration(broker) as admin:
        admin.create_queue(DESTINATION)
        set_status(admin, "SendDisabled")
        with client.connect() as connection, by_way_of_orders(connection) as sender:
            sender.send_messages([ServiceBusMessage(text, message_id=text) for text in ("one", "two")])
        locked = rest.peek_lock(lost)
        assert (locked.status, locked.text, locked.properties["MessageId"]) == (201, "one", "one")
        assert locked.headers["DeadLetterReason"] == '"DestinationDisabled"'
        assert rest.request("PUT", locked.location).status == 200
        locked = rest.peek_lock(lost)
        assert (locked.text, locked.properties["DeliveryCount"]) == ("one", 1), "a dead letter's count is frozen"
        assert rest.request("DELETE", locked.location).status == 200
        assert (taken := rest.take(lost)).status == 200 and taken.text == "two"
        assert rest.take(lost).status == 204
        assert rest.request("POST", f"/{lost}/messages", "x").status == 403
        assert admin.get_queue_runtime_properties("orders").transfer_dead_letter_message_count == 0
