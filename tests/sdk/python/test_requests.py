"""What clients ask of a queue beside sending and receiving: peek, schedule, cancel, renew, defer, settle by token."""

import datetime

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, ServiceBusError
from client import WAIT_SECONDS

DEAD_LETTERS = ServiceBusSubQueue.DEAD_LETTER


def in_an_hour():
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)


def one(receiver):
    (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
    return message


# S-8, S-130, S-131, S-132, S-133
def test_peek_shows_messages_of_every_state_in_order_and_changes_nothing(client):
    client.send(*[ServiceBusMessage(f"{n}", message_id=f"id-{n}") for n in range(3)])
    with client.connect() as connection:
        with connection.get_queue_sender("orders") as sender:
            sender.schedule_messages(ServiceBusMessage("later"), in_an_hour())
        with connection.get_queue_receiver("orders") as receiver:
            receiver.defer_message(one(receiver))
            locked = one(receiver)
            peeked = receiver.peek_messages(10, sequence_number=1)
            assert [(str(m), m.sequence_number) for m in peeked] == [("0", 1), ("1", 2), ("2", 3), ("later", 4)]
            assert [m.state for m in peeked] == [
                ServiceBusMessageState.DEFERRED,
                ServiceBusMessageState.ACTIVE,
                ServiceBusMessageState.ACTIVE,
                ServiceBusMessageState.SCHEDULED,
            ]
            assert [m.message_id for m in peeked[:3]] == ["id-0", "id-1", "id-2"]
            assert peeked[1].raw_amqp_message.annotations.get(b"x-opt-locked-until") is None
            assert [m.sequence_number for m in receiver.peek_messages(2, sequence_number=2)] == [2, 3]
            assert receiver.peek_messages(5, sequence_number=5) == []
            receiver.complete_message(locked)
            assert one(receiver).sequence_number == 3


# S-40, S-42, S-44
def test_a_scheduled_message_has_a_number_and_is_cancelled_by_it(client):
    with client.connect() as connection, connection.get_queue_sender("orders") as sender:
        messages = [ServiceBusMessage("one"), ServiceBusMessage("two")]
        assert sender.schedule_messages(messages, in_an_hour()) == [1, 2]
        sender.cancel_scheduled_messages([1])
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages([1])
        with connection.get_queue_receiver("orders") as receiver:
            assert [m.sequence_number for m in receiver.peek_messages(10)] == [2]
        past = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
        assert sender.schedule_messages(ServiceBusMessage("at once"), past) == [3]
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        assert str(one(receiver)) == "at once"


# S-83
def test_a_lock_is_renewed(client):
    client.send(ServiceBusMessage("mine"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        message = one(receiver)
        before = message.locked_until_utc
        until = receiver.renew_message_lock(message)
        assert until >= before and message.locked_until_utc == until
        receiver.complete_message(message)
        message._settled = False
        with pytest.raises(MessageLockLostError):
            receiver.renew_message_lock(message)


# S-83: the token counts on another connection too, which is how kombu renews.
def test_a_lock_is_renewed_from_another_connection(client):
    client.send(ServiceBusMessage("mine"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        message = one(receiver)
        with client.connect() as other, other.get_queue_receiver("orders") as stranger:
            message._receiver = stranger
            assert stranger.renew_message_lock(message) >= message.locked_until_utc
        message._receiver = receiver
        receiver.complete_message(message)


# S-120, S-121, S-123, S-126
def test_deferred_messages_are_received_by_number_and_settled(client):
    client.send(*[ServiceBusMessage(f"{n}") for n in range(4)])
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        numbers = []
        for _ in range(4):
            message = one(receiver)
            numbers.append(message.sequence_number)
            receiver.defer_message(message)
        assert receiver.receive_messages(max_wait_time=WAIT_SECONDS) == []
        first, second, third, fourth = receiver.receive_deferred_messages(numbers)
        assert [str(m) for m in (first, second, third, fourth)] == ["0", "1", "2", "3"]
        assert first.delivery_count == 1 and first.state == ServiceBusMessageState.DEFERRED
        receiver.complete_message(first)
        receiver.abandon_message(second)
        receiver.dead_letter_message(third, reason="why", error_description="because")
        receiver.defer_message(fourth)
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages([numbers[0]])
        again = receiver.receive_deferred_messages([numbers[1], numbers[3]])
        assert [m.delivery_count for m in again] == [2, 2]
        with connection.get_queue_receiver("orders", sub_queue=DEAD_LETTERS) as dead:
            (letter,) = dead.peek_messages(5)
            assert (str(letter), letter.dead_letter_reason) == ("2", "why")
            assert letter.dead_letter_error_description == "because"
            assert letter.sequence_number == numbers[2]


# S-121
def test_a_deferred_message_can_be_taken_for_good(client):
    client.send(ServiceBusMessage("once"))
    with client.connect() as connection:
        with connection.get_queue_receiver("orders") as receiver:
            receiver.defer_message(one(receiver))
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with connection.get_queue_receiver("orders", receive_mode=mode) as receiver:
            (message,) = receiver.receive_deferred_messages([1])
            assert str(message) == "once"
            assert receiver.peek_messages(5) == []


# S-92, S-94: the link is gone, the token is not.
def test_a_message_is_settled_by_its_token_after_its_link_is_gone(client):
    client.send(ServiceBusMessage("kept"))
    with client.connect() as connection:
        with connection.get_queue_receiver("orders") as receiver:
            message = one(receiver)
        with connection.get_queue_receiver("orders") as other:
            tokens = [message.lock_token]
            other._settle_message_via_mgmt_link("completed", tokens)
            with pytest.raises(MessageLockLostError):
                other._settle_message_via_mgmt_link("completed", tokens)
            assert other.peek_messages(5) == []


# A body from disk: the cache of a new process is empty.
def test_peek_reads_what_a_former_process_stored(broker, client):
    client.send(*[ServiceBusMessage("x" * 100_000) for _ in range(30)])
    broker.restart()
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        seen = []
        while page := receiver.peek_messages(30, sequence_number=len(seen) + 1):
            assert all(str(m) == "x" * 100_000 for m in page)
            seen += [m.sequence_number for m in page]
    assert seen == list(range(1, 31))


def test_an_unknown_operation_is_refused_at_once(client):
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        with pytest.raises(ServiceBusError, match="not supported by this version"):
            receiver._mgmt_request_response_with_retry(
                b"com.microsoft:no-such-operation", {}, _raise_on_status
            )


def _raise_on_status(status_code, message, description, **_):
    assert status_code == 501
    raise ServiceBusError(description.decode())
