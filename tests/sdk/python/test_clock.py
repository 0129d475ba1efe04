"""The test clock: time is moved by an hour, and what was due happens on the way, each at its instant."""

import json
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from client import Client
from clock import Clock
from test_administration import administration


@pytest.fixture
def clocked(unstarted_broker):
    unstarted_broker.start(flags=("--test-clock",))
    return unstarted_broker


def test_an_hour_passes_in_order_and_each_event_at_its_own_instant(clocked):
    client, clock = Client(clocked), Clock(clocked)
    with administration(clocked) as admin:
        admin.create_queue("mortal", dead_lettering_on_message_expiration=True)
        admin.create_queue("dropping")
        admin.create_queue("idle", auto_delete_on_idle=timedelta(minutes=30))
        created = admin.get_queue_runtime_properties("idle").created_at_utc
    live = timedelta(minutes=10)
    client.send(ServiceBusMessage("late", time_to_live=live), queue="mortal")
    earliest = clock.now()
    client.send(ServiceBusMessage("gone", time_to_live=live), queue="dropping")
    latest = clock.now()
    due = clock.now() + timedelta(minutes=20)
    client.send(ServiceBusMessage("tea", scheduled_enqueue_time_utc=due), ServiceBusMessage("job"))
    with client.connect() as connection:
        with connection.get_queue_receiver("orders") as receiver:
            (locked,) = receiver.receive_messages(max_wait_time=5)
    before = clock.now()
    told = clock.advance("PT1H")
    with client.connect() as connection, connection.get_queue_receiver(
        "mortal", sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        (late,) = receiver.receive_messages(max_wait_time=5)
    assert late.dead_letter_reason == "TTLExpiredException"
    # Nobody can look at what was dropped; its instant is between two looks at the clock.
    dropped = clock.read(told["events"][2]["instant"])
    assert earliest + live <= dropped <= latest + live

    def instant(event, entity, at, **more):
        return {"event": event, "entity": entity, "instant": at, **more}

    assert told["events"] == [
        instant("lockExpired", "orders", clock.text(locked.locked_until_utc), sequenceNumber=2, outcome="returned"),
        instant(
            "messageExpired", "mortal", clock.text(late.enqueued_time_utc + live), sequenceNumber=1, outcome="deadLettered"
        ),
        instant("messageExpired", "dropping", clock.text(dropped), sequenceNumber=1, outcome="dropped"),
        instant("messageActivated", "orders", clock.text(due), sequenceNumber=3, scheduledSequenceNumber=1),
        instant("entityDeleted", "idle", clock.text(created + timedelta(minutes=30))),
    ]
    assert told["more"] == 0
    assert clock.read(told["now"]) >= before + timedelta(hours=1)
    with administration(clocked) as admin, pytest.raises(ResourceNotFoundError):
        admin.get_queue("idle")
    with client.connect() as connection, connection.get_queue_receiver(
        "orders", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        job, tea = receiver.receive_messages(max_message_count=2, max_wait_time=5)
    assert (str(job), job.delivery_count) == ("job", 1)
    assert (str(tea), clock.text(tea.enqueued_time_utc)) == ("tea", clock.text(due))


def test_moved_time_does_not_go_back_with_a_restart(clocked):
    client, clock = Client(clocked), Clock(clocked)
    there = clock.read(clock.advance("P1D")["now"])
    clocked.kill()
    clocked.start(flags=("--test-clock",))
    assert there <= clock.now() < there + timedelta(hours=1)
    # Also where the clock cannot be moved any more.
    clocked.kill()
    clocked.start()
    client.send(ServiceBusMessage("tomorrow"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=5)
        receiver.complete_message(message)
    assert message.enqueued_time_utc >= there


def test_the_clock_of_one_namespace_moves_no_other(unstarted_broker):
    unstarted_broker.config.write_text('test_clock = true\n[[namespace]]\nname = "shop"\n')
    unstarted_broker.start()
    clock, shop = Clock(unstarted_broker), Clock(unstarted_broker, host="shop.localhost")
    real = datetime.now(timezone.utc)
    shop.advance("P7D")
    assert shop.now() >= real + timedelta(days=7)
    assert clock.now() < real + timedelta(days=1)


def test_without_the_flag_there_is_no_clock(broker):
    with pytest.raises(urllib.error.HTTPError) as refused:
        Clock(broker).advance("PT1H")
    assert refused.value.code == 404


def test_only_who_manages_moves_time(clocked):
    clock = Clock(clocked)
    with pytest.raises(urllib.error.HTTPError) as refused:
        Clock(clocked, key="wrong").advance("PT1H")
    assert refused.value.code == 401
    with pytest.raises(urllib.error.HTTPError) as refused:
        clock.advance("tomorrow")
    assert refused.value.code == 400
    assert "ISO 8601" in refused.value.read().decode()
    with urllib.request.urlopen(f"http://127.0.0.1:{clocked.port}/health") as healthy:
        assert json.load(healthy)["status"] == "healthy"
