"""Message sessions through the official SDK: accepting, order, locks, state, and what survives a crash."""

import datetime

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import ServiceBusAdministrationClient
from client import WAIT_SECONDS

QUEUE = "sessions"


@pytest.fixture
def admin(broker):
    options = {"connection_verify": broker.ca, "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options) as admin:
        admin.create_queue(QUEUE, requires_session=True)
        yield admin


@pytest.fixture
def sessions(client, admin):
    return client


def send(client, *sent, queue=QUEUE):
    client.send(*[ServiceBusMessage(body, session_id=session) for session, body in sent], queue=queue)


def take(receiver, count):
    """Receives and completes so many messages, and gives what they say."""
    taken = []
    while len(taken) < count:
        messages = receiver.receive_messages(max_message_count=count - len(taken), max_wait_time=WAIT_SECONDS)
        assert messages, f"only {taken} of {count} came"
        for message in messages:
            taken.append(str(message))
            receiver.complete_message(message)
    return taken


def accept(connection, session=NEXT_AVAILABLE_SESSION, **options):
    options.setdefault("max_wait_time", WAIT_SECONDS)
    return connection.get_queue_receiver(QUEUE, session_id=session, **options)


# S-142, S-145, S-152
def test_each_session_gives_its_own_messages_in_order_also_after_kill(broker, sessions):
    send(sessions, *[(f"s{n % 3}", str(n)) for n in range(30)])
    broker.restart()
    with sessions.connect() as connection:
        for session in range(3):
            with accept(connection, f"s{session}") as receiver:
                assert receiver.session.session_id == f"s{session}"
                assert take(receiver, 10) == [str(n) for n in range(session, 30, 3)]
                assert receiver.receive_messages(max_wait_time=WAIT_SECONDS) == []


# S-144, A-6.1.2
def test_the_next_available_session_is_one_that_nobody_holds(sessions):
    send(sessions, ("a", "1"), ("b", "2"), ("a", "3"))
    with sessions.connect() as connection, accept(connection) as first:
        with sessions.connect() as other, accept(other) as second:
            held = {first.session.session_id: take(first, 2), second.session.session_id: take(second, 1)}
    assert held == {"a": ["1", "3"], "b": ["2"]}


# S-144, A-6.2.1
def test_whoever_finds_no_session_is_told_so_in_time(sessions):
    with sessions.connect() as connection:
        with pytest.raises(OperationTimeoutError):
            accept(connection, max_wait_time=1).__enter__()


# S-142, S-143, S-147
def test_a_session_has_one_receiver_at_a_time_and_is_free_when_it_closes(sessions):
    send(sessions, ("a", "1"))
    with sessions.connect() as connection, sessions.connect() as other:
        with accept(connection, "a") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
            with pytest.raises(SessionCannotBeLockedError):
                accept(other, "a").__enter__()
        with accept(other, "a") as receiver:
            (again,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
            # S-148
            assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 0)


# S-143, S-151: the requester accepts its reply session before there is a reply.
def test_a_reply_comes_to_the_session_that_the_request_names(sessions):
    with sessions.connect() as connection, accept(connection, "replies to me") as replies:
        request = ServiceBusMessage(
            "question", message_id="q1", reply_to=QUEUE, reply_to_session_id="replies to me"
        )
        sessions.send(request)
        with connection.get_queue_receiver("orders") as receiver:
            (asked,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
            reply = ServiceBusMessage(
                "answer", correlation_id=asked.message_id, session_id=asked.reply_to_session_id
            )
            sessions.send(reply, queue=asked.reply_to)
            receiver.complete_message(asked)
        (answer,) = replies.receive_messages(max_wait_time=WAIT_SECONDS)
        assert (str(answer), answer.correlation_id) == ("answer", "q1")


# S-86, S-125, S-145
def test_messages_of_a_session_are_abandoned_deferred_and_dead_lettered(sessions):
    send(sessions, *[("a", str(n)) for n in range(3)])
    with sessions.connect() as connection, accept(connection, "a") as receiver:
        (first,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        receiver.abandon_message(first)
        (again,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        assert (str(again), again.delivery_count) == ("0", 1)
        receiver.defer_message(again)
        (second,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        receiver.dead_letter_message(second, reason="why")
        (deferred,) = receiver.receive_deferred_messages(again.sequence_number)
        assert (str(deferred), deferred.delivery_count) == ("0", 2)
        receiver.complete_message(deferred)
        assert take(receiver, 1) == ["2"]


# S-103: the dead-letter queue of a session queue is read without a session.
def test_dead_letters_of_a_session_are_read_without_one(sessions):
    send(sessions, ("a", "1"))
    with sessions.connect() as connection:
        with accept(connection, "a") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
            receiver.dead_letter_message(message, reason="why")
        with connection.get_queue_receiver(QUEUE, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
            (letter,) = letters.receive_messages(max_wait_time=WAIT_SECONDS)
            assert (letter.session_id, letter.dead_letter_reason) == ("a", "why")
            letters.complete_message(letter)


# S-80
def test_receive_and_delete_takes_what_a_session_has(broker, sessions):
    send(sessions, ("a", "1"), ("a", "2"), ("b", "3"))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with sessions.connect() as connection, accept(connection, "a", receive_mode=mode) as receiver:
        taken = []
        while len(taken) < 2:
            taken += [str(m) for m in receiver.receive_messages(2, max_wait_time=WAIT_SECONDS)]
        assert taken == ["1", "2"]
    broker.restart()
    with sessions.connect() as connection, accept(connection) as receiver:
        assert receiver.session.session_id == "b"


# S-149
def test_the_state_of_a_session_is_kept_until_it_is_cleared(broker, sessions):
    state = bytes(range(256)) * 100
    with sessions.connect() as connection, accept(connection, "a") as receiver:
        assert receiver.session.get_state() is None
        receiver.session.set_state("first")
        receiver.session.set_state(state)
        assert receiver.session.get_state() == state
    broker.restart()
    with sessions.connect() as connection, accept(connection, "a") as receiver:
        assert receiver.session.get_state() == state
        receiver.session.set_state(None)
        assert receiver.session.get_state() is None
    broker.restart()
    with sessions.connect() as connection, accept(connection, "a") as receiver:
        assert receiver.session.get_state() is None


# S-142
def test_the_lock_of_a_session_is_renewed(sessions):
    with sessions.connect() as connection, accept(connection, "a") as receiver:
        before = receiver.session.locked_until_utc
        now = datetime.datetime.now(datetime.timezone.utc)
        assert datetime.timedelta(seconds=30) < before - now < datetime.timedelta(seconds=90)
        assert receiver.session.renew_lock() >= before


# S-134
def test_whoever_peeks_in_a_session_sees_only_that(sessions):
    send(sessions, ("a", "1"), ("b", "2"), ("a", "3"))
    with sessions.connect() as connection, accept(connection, "a") as receiver:
        assert [str(m) for m in receiver.peek_messages(10)] == ["1", "3"]


# S-140
def test_receivers_and_queues_must_agree_on_sessions(sessions):
    with sessions.connect() as connection:
        with pytest.raises(ServiceBusError, match="create a non-sessionful message receiver"):
            connection.get_queue_receiver(QUEUE).receive_messages(max_wait_time=WAIT_SECONDS)
        with pytest.raises(ServiceBusError, match="sessionful message receiver cannot be created on an entity"):
            with connection.get_queue_receiver("orders", session_id="a"):
                pass


# S-6
def test_a_session_id_has_128_characters_at_most(sessions):
    send(sessions, ("x" * 128, "fits"))
    with sessions.connect() as connection, accept(connection) as receiver:
        assert receiver.session.session_id == "x" * 128
        assert take(receiver, 1) == ["fits"]


# S-41, S-44
def test_a_scheduled_message_keeps_its_session(sessions):
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=1)
    with sessions.connect() as connection:
        with connection.get_queue_sender(QUEUE) as sender:
            sender.schedule_messages(ServiceBusMessage("later", session_id="a"), soon)
        with accept(connection, max_wait_time=10) as receiver:
            assert receiver.session.session_id == "a"
            assert take(receiver, 1) == ["later"]


# S-177
def test_a_forwarded_message_keeps_its_session(sessions, admin):
    admin.create_queue("entry", forward_to=QUEUE)
    send(sessions, ("a", "1"), queue="entry")
    with sessions.connect() as connection, accept(connection, "a") as receiver:
        assert take(receiver, 1) == ["1"]


# S-150, A-9.3.2
def test_sessions_are_listed(sessions):
    with sessions.connect() as connection:
        assert list(connection.list_queue_sessions(QUEUE)) == []
        send(sessions, *[(f"s{n}", "x") for n in range(3)])
        assert sorted(connection.list_queue_sessions(QUEUE)) == ["s0", "s1", "s2"]
        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=1)
        with accept(connection, "stateful") as receiver:
            receiver.session.set_state("x")
        assert list(connection.list_queue_sessions(QUEUE, state_updated_after=before)) == ["stateful"]


# S-142, S-145: a subscription has sessions as a queue does.
def test_a_subscription_gives_its_sessions_out(broker, sessions, admin):
    admin.create_topic("news")
    admin.create_subscription("news", "ordered", requires_session=True)
    with sessions.connect() as connection:
        with connection.get_topic_sender("news") as sender:
            sender.send_messages([ServiceBusMessage(str(n), session_id=f"s{n % 2}") for n in range(6)])
        broker.restart()
    with sessions.connect() as connection:
        for session in range(2):
            accepted = connection.get_subscription_receiver("news", "ordered", session_id=f"s{session}")
            with accepted as receiver:
                assert take(receiver, 3) == [str(n) for n in range(session, 6, 2)]
        assert list(connection.list_subscription_sessions("news", "ordered")) == []
