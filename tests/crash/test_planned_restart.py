"""A planned restart keeps locks (S-93): what somebody was working on is given to nobody else. After a kill it is free."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError
from otobus import Otobus

# The shortest that there is (S-82), for this test waits until a lock has ended.
LOCK = "PT5S"


@pytest.fixture
def briefly_locking_broker(tmp_path):
    broker = Otobus(tmp_path, queues=())
    broker.config.write_text(f'[[queue]]\nname = "orders"\nlock_duration = "{LOCK}"\n')
    yield broker.start()
    broker.kill()
    print(broker.log.read_text())


def send(broker, *ids):
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("x", message_id=each) for each in ids])


def receive(broker, most, patience):
    """What comes, locked and then left alone; ids and counts of failed deliveries."""
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_receiver("orders", prefetch_count=0) as receiver:
            received = receiver.receive_messages(max_message_count=most, max_wait_time=patience)
            return [(each.message_id, each.delivery_count) for each in received]


def test_a_planned_restart_keeps_a_lock_until_its_end(briefly_locking_broker):
    # S-93: ours are kept
    broker = briefly_locking_broker
    send(broker, "locked", "free")
    assert receive(broker, 1, 5) == [("locked", 0)]
    assert broker.stop() == 0
    broker.start()
    assert receive(broker, 2, 1) == [("free", 0)], "what is locked is given to nobody else"
    assert receive(broker, 1, 10) == [("locked", 1)], "and comes when its lock has ended"


def test_a_lock_token_is_good_after_a_planned_restart_and_void_after_a_kill(briefly_locking_broker):
    # S-93, S-94
    broker = briefly_locking_broker
    send(broker, "first", "second")
    tokens = []
    for end in (broker.stop, broker.kill):
        with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
            with client.get_queue_receiver("orders") as receiver:
                [received] = receiver.receive_messages(max_message_count=1, max_wait_time=10)
                tokens.append(received.lock_token)
        end()
        broker.start()
        with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
            with client.get_queue_receiver("orders") as receiver:
                if end == broker.stop:
                    receiver._settle_message_via_mgmt_link("completed", [tokens[-1]])
                else:
                    with pytest.raises(MessageLockLostError):
                        receiver._settle_message_via_mgmt_link("completed", [tokens[-1]])
    assert receive(broker, 2, 2) == [("second", 0)]


def test_a_kill_frees_what_was_locked(briefly_locking_broker):
    # S-93
    broker = briefly_locking_broker
    send(broker, "locked")
    assert receive(broker, 1, 5) == [("locked", 0)]
    broker.restart()
    assert receive(broker, 1, 2) == [("locked", 0)]
