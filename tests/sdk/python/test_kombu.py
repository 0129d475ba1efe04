"""kombu's transport for Service Bus, as Celery uses it."""

from datetime import timedelta

import kombu_plain
import pytest
from kombu import Connection, Exchange, Queue
from test_administration import administration

TASKS = Exchange("tasks", type="direct")


@pytest.fixture
def connection(broker, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", broker.ca)
    options = {"wait_time_seconds": 2, "peek_lock_seconds": 30}
    with Connection(kombu_plain.url(broker), transport_options=options) as connection:
        yield connection


def declared(connection, name="tasks.high"):
    queue = Queue(name, TASKS, routing_key=name, channel=connection.channel())
    queue.declare()
    return queue


def publish(connection, queue, *bodies):
    for body in bodies:
        connection.Producer().publish(body, exchange=queue.exchange, routing_key=queue.routing_key)


def test_a_queue_is_declared_counted_consumed_and_deleted(broker, connection):
    # S-283: the lock's duration is set at creation, the total count is the length
    queue = declared(connection)
    with administration(broker) as admin:
        assert admin.get_queue("tasks.high").lock_duration == timedelta(seconds=30)
    publish(connection, queue, *({"number": number} for number in range(5)))
    assert queue.channel._size("tasks.high") == 5
    taken = []

    def take(body, message):
        taken.append(body["number"])
        message.ack()

    with connection.Consumer([queue], callbacks=[take]):
        while len(taken) < 5:
            connection.drain_events(timeout=10)
    assert taken == [0, 1, 2, 3, 4]
    assert queue.channel._size("tasks.high") == 0
    queue.delete()
    with administration(broker) as admin:
        assert "tasks.high" not in [each.name for each in admin.list_queues()]


def test_declaring_a_queue_again_changes_nothing(connection):
    publish(connection, declared(connection), "kept")
    again = declared(connection)
    assert again.get(no_ack=True).payload == "kept"


def test_a_purge_takes_everything_although_it_waits_a_fifth_of_a_second(connection):
    # S-283
    queue = declared(connection)
    publish(connection, queue, *range(23))
    assert queue.purge() == 23
    assert queue.channel._size("tasks.high") == 0


def test_a_lock_is_renewed_by_a_receiver_that_did_not_take_it(connection):
    # S-83, S-283: kombu keeps a receiver for renewals alone
    queue = declared(connection)
    publish(connection, queue, "slow")
    message = queue.get()
    taken = message.delivery_info["azure_message"]
    before = taken.locked_until_utc
    renewer = queue.channel._get_renewal_receiver("tasks.high").receiver
    assert renewer.renew_message_lock(taken) > before
    message.ack()
    assert queue.channel._size("tasks.high") == 0
