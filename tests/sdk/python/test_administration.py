"""Queues made, read and removed by the official administration client, over HTTPS with the broker's own CA."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import AccessRights, AuthorizationRule, ServiceBusAdministrationClient


def administration(broker, connection_string=None, **options):
    options.setdefault("connection_verify", broker.ca)
    options.setdefault("retry_total", 0)
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string or broker.connection_string(), **options
    )


def test_a_queue_is_created_read_listed_and_deleted(broker):
    with administration(broker) as admin:
        created = admin.create_queue("invoices", lock_duration=timedelta(seconds=30), max_delivery_count=4)
        assert created.name == "invoices"

        read = admin.get_queue("invoices")
        assert read.lock_duration == timedelta(seconds=30)
        assert read.max_delivery_count == 4
        assert sorted(queue.name for queue in admin.list_queues()) == ["invoices", "orders"]

        admin.delete_queue("invoices")
        with pytest.raises(ResourceNotFoundError):
            admin.get_queue("invoices")
        assert [queue.name for queue in admin.list_queues()] == ["orders"]


def test_a_created_queue_takes_messages_and_survives_sigkill(broker, client):
    with administration(broker) as admin:
        admin.create_queue("invoices")
    broker.restart()
    client.send(ServiceBusMessage("due on Monday"), queue="invoices")
    broker.restart()
    with client.connect() as connection, connection.get_queue_receiver("invoices") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=2)
        assert str(message) == "due on Monday"


# S-178
def test_who_sends_to_a_queue_that_forwards_needs_no_right_where_its_messages_go(broker):
    rule = AuthorizationRule(
        key_name="sender", primary_key="sender-key", rights=[AccessRights.SEND], type="SharedAccessAuthorizationRule"
    )
    with administration(broker) as admin:
        admin.create_queue("source", forward_to="orders", authorization_rules=[rule])
    string = f"Endpoint=sb://127.0.0.1:{broker.port};SharedAccessKeyName=sender;SharedAccessKey=sender-key;UseDevelopmentEmulator=true;"
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        with client.get_queue_sender("source") as sender:
            sender.send_messages(ServiceBusMessage("on its way"))
        with pytest.raises(ServiceBusError), client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("straight"))
    with administration(broker) as admin:
        assert admin.get_queue_runtime_properties("orders").active_message_count == 1


def test_a_deleted_queue_stays_deleted_after_sigkill(broker):
    with administration(broker) as admin:
        admin.create_queue("invoices")
        admin.delete_queue("invoices")
    broker.restart()
    with administration(broker) as admin, pytest.raises(ResourceNotFoundError):
        admin.get_queue("invoices")


def test_runtime_properties_count_the_messages(broker, client):
    client.send(ServiceBusMessage("one"), ServiceBusMessage("two"))
    with administration(broker) as admin:
        properties = admin.get_queue_runtime_properties("orders")
    assert properties.active_message_count == 2
    assert properties.total_message_count == 2
    assert properties.dead_letter_message_count == 0
    assert properties.size_in_bytes > 0


def test_creating_a_queue_twice_is_a_conflict(broker):
    with administration(broker) as admin, pytest.raises(ResourceExistsError):
        admin.create_queue("orders")


def test_deleting_an_unknown_queue_is_not_found(broker):
    with administration(broker) as admin, pytest.raises(ResourceNotFoundError):
        admin.delete_queue("nowhere")


def test_administration_with_a_wrong_key_is_refused(broker):
    wrong = broker.connection_string(key="bm90IHRoZSBrZXk=")
    with administration(broker, wrong) as admin, pytest.raises(ClientAuthenticationError):
        admin.create_queue("invoices")
    with administration(broker) as admin, pytest.raises(ResourceNotFoundError):
        admin.get_queue("invoices")


def test_a_client_that_does_not_trust_the_ca_does_not_connect(broker):
    with administration(broker, connection_verify=True) as admin, pytest.raises(ServiceRequestError):
        admin.get_queue("orders")


def test_runtime_properties_tell_what_has_become_of_the_messages(broker, client):
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    client.send(*(ServiceBusMessage("x" * 100) for _ in range(4)))
    with administration(broker) as admin:
        size = admin.get_queue_runtime_properties("orders").size_in_bytes
        assert size >= 400
    client.send(ServiceBusMessage("later", scheduled_enqueue_time_utc=later))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        dead, deferred, done = receiver.receive_messages(max_message_count=3, max_wait_time=5)
        receiver.dead_letter_message(dead)
        receiver.defer_message(deferred)
        receiver.complete_message(done)
    with administration(broker) as admin:
        (listed,) = admin.list_queues_runtime_properties()
        properties = admin.get_queue_runtime_properties("orders")
    for counted in (listed, properties):
        assert counted.active_message_count == 1
        assert counted.dead_letter_message_count == 1
        assert counted.scheduled_message_count == 1
        assert counted.transfer_message_count == counted.transfer_dead_letter_message_count == 0
        # The deferred one is in the total alone.
        assert counted.total_message_count == 4
        assert counted.size_in_bytes < size + 100


def test_a_namespace_keeps_the_time_of_its_creation(unstarted_broker):
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    unstarted_broker.start()
    with administration(unstarted_broker) as admin:
        created = admin.get_namespace_properties().created_at_utc
    assert before <= created <= datetime.now(timezone.utc) + timedelta(seconds=1)
    unstarted_broker.restart()
    with administration(unstarted_broker) as admin:
        assert admin.get_namespace_properties().created_at_utc == created
