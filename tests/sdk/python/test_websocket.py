"""AMQP over WebSocket in TLS, through the official SDK, synchronous and asynchronous, as behind a firewall that lets only HTTPS out."""

import asyncio
import os
from datetime import datetime, timedelta, timezone

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from client import WAIT_SECONDS
from test_log import root_key

LARGE = os.urandom(700_000)


def options(broker):
    # Python does not look at the port in the endpoint when it speaks WebSocket.
    return {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"sb://localhost:{broker.port}",
        "connection_verify": broker.ca,
        "retry_total": 0,
    }


def connection_string(key):
    return f"Endpoint=sb://localhost/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={key}"


def connected(broker, key=None):
    return ServiceBusClient.from_connection_string(connection_string(key or root_key(broker)), **options(broker))


def test_messages_small_and_large_are_sent_received_and_settled(broker):
    with connected(broker) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
            sender.send_messages(ServiceBusMessage(LARGE))
        with client.get_queue_receiver("orders", max_wait_time=10) as receiver:
            received = []
            for message in receiver:
                received.append(b"".join(message.body))
                receiver.complete_message(message)
                if len(received) == 3:
                    break
            assert received == [b"one", b"two", LARGE]
            assert receiver.peek_messages() == [], "what was settled is gone"


def test_a_wrong_key_is_refused(broker):
    with connected(broker, "wrong") as client, pytest.raises(ServiceBusError):
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("nobody's"))


def test_the_asynchronous_client_does_the_same(broker):
    async def story():
        string = connection_string(root_key(broker))
        async with AsyncServiceBusClient.from_connection_string(string, **options(broker)) as client:
            async with client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage(LARGE))
                in_an_hour = datetime.now(timezone.utc) + timedelta(hours=1)
                (number,) = await sender.schedule_messages([ServiceBusMessage("never")], in_an_hour)
                await sender.cancel_scheduled_messages(number)
            async with client.get_queue_receiver("orders") as receiver:
                (message,) = await receiver.receive_messages(max_wait_time=10)
                await receiver.renew_message_lock(message)
                await receiver.complete_message(message)
                assert await receiver.receive_messages(max_wait_time=WAIT_SECONDS) == []
                return b"".join(message.body)

    assert asyncio.run(story()) == LARGE
