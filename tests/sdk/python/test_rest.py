"""Messages cross between HTTP and AMQP with everything in its place: http.client on one side, the official SDK on the other."""

import datetime
import email.utils
import json
import uuid

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageLockLostError
from client import WAIT_SECONDS, Client
from clock import Clock
from rest import Rest
from test_administration import administration

BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


@pytest.fixture
def rest(broker):
    return Rest(broker)


def receive(client, queue="orders", sub_queue=None):
    """The next message of a queue through the SDK, for good."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.connect() as connection:
        with connection.get_queue_receiver(queue, sub_queue=sub_queue, receive_mode=mode) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
            return message


def seconds_between(one, other):
    return abs((email.utils.parsedate_to_datetime(one) - other).total_seconds())


# S-4, S-67, HX-2.1, H-92, H-94, H-95, H-98
def test_a_message_sent_over_http_is_received_over_amqp(client, rest):
    properties = {
        "MessageId": "m-1",
        "Label": "label ü",
        "CorrelationId": "c-1",
        "To": "to",
        "ReplyTo": "reply",
        "ReplyToSessionId": "reply session",
        "SessionId": "session",
        "PartitionKey": "session",
        "TimeToLive": 8640000.5,
        "ForcePersistence": True,
        "State": "Scheduled",
        "SequenceNumber": 7,
    }
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Priority": '"High"',
        "orderId": "12",
        "Large": "9007199254740993",
        "Share": "0.25",
        "Is-New": "true",
        "Is-Old": "false",
        "Plain": "12345,ABC",
        "Quoted-Number": '"12"',
        "x-ms-retrypolicy": "NoRetry",
    }
    rest.send("grüße".encode(), properties, headers)
    message = receive(client)
    assert b"".join(message.body) == "grüße".encode()
    assert (message.message_id, message.subject, message.correlation_id) == ("m-1", "label ü", "c-1")
    assert (message.to, message.reply_to, message.reply_to_session_id) == ("to", "reply", "reply session")
    assert (message.session_id, message.partition_key) == ("session", "session")
    assert message.content_type == "text/plain; charset=utf-8"
    # The SDK's own time_to_live ends at 49 days.
    times = message.raw_amqp_message.properties
    assert times.absolute_expiry_time - times.creation_time == 8640000500
    assert (message.sequence_number, message.delivery_count) == (1, 0)
    assert {name.decode(): value for name, value in message.application_properties.items()} == {
        "Priority": b"High",
        "orderId": 12,
        "Large": 9007199254740993,
        "Share": 0.25,
        "Is-New": True,
        "Is-Old": False,
        "Plain": b"12345,ABC",
        "Quoted-Number": b"12",
    }


# S-4, HX-2.3, H-93, H-94, H-95
def test_a_message_sent_over_amqp_is_received_over_http(client, rest):
    moment = datetime.datetime(2014, 7, 2, 1, 32, 27, tzinfo=datetime.timezone.utc)
    sent = ServiceBusMessage(
        "grüße",
        message_id="m-1",
        subject="label ü",
        correlation_id="c-1",
        to="to",
        reply_to="reply",
        reply_to_session_id="reply session",
        session_id="session",
        partition_key="session",
        content_type="text/plain",
        time_to_live=datetime.timedelta(days=10),
        application_properties={
            "Text": 'a "quoted" ü',
            "Bytes": b"bytes",
            "Int": 12,
            "Long": 2**31 - 1,
            "Double": 1.0,
            "True": True,
            "False": False,
            "Uuid": uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10"),
            "Date": moment,
            "Moment": moment,
            "two words": "are no header",
            "Content-Length": 3,
        },
    )
    client.send(sent)
    answer = rest.peek_lock()
    assert (answer.status, answer.body) == (201, "grüße".encode())
    assert answer.headers["Content-Type"] == "text/plain"
    shown = answer.properties
    now = datetime.datetime.now(datetime.timezone.utc)
    assert seconds_between(shown.pop("EnqueuedTimeUtc"), now) < 60
    assert 0 < seconds_between(shown.pop("LockedUntilUtc"), now) < 120
    lock_token = shown.pop("LockToken")
    assert shown == {
        "MessageId": "m-1",
        "Label": "label ü",
        "CorrelationId": "c-1",
        "To": "to",
        "ReplyTo": "reply",
        "ReplyToSessionId": "reply session",
        "SessionId": "session",
        "PartitionKey": "session",
        "TimeToLive": 864000,
        "SequenceNumber": 1,
        "EnqueuedSequenceNumber": 0,
        "DeliveryCount": 1,
        "State": "Active",
    }
    assert answer.location == f"/orders/messages/1/{lock_token}"
    expected = {
        "Text": '"a \\"quoted\\" \\u00fc"',
        "Bytes": '"bytes"',
        "Int": "12",
        "Long": str(2**31 - 1),
        "Double": "1.0",
        "True": "true",
        "False": "false",
        "Uuid": '"01020304-0506-0708-090a-0b0c0d0e0f10"',
        "Moment": '"Wed, 02 Jul 2014 01:32:27 GMT"',
    }
    assert {name: answer.headers[name] for name in expected} == expected
    # What HTTP itself has a use for is HTTP's.
    assert answer.headers["Content-Length"] is None
    assert answer.headers["Date"] == answer.properties["EnqueuedTimeUtc"]
    assert rest.request("DELETE", answer.location).status == 200
    assert rest.take().status == 204


# HX-2.4
def test_what_is_received_and_deleted_is_gone(client, rest):
    client.send(ServiceBusMessage("once"))
    answer = rest.take()
    assert (answer.status, answer.text) == (200, "once")
    assert "LockToken" not in answer.properties and answer.headers["Location"] is None
    assert rest.take().status == 204
    assert client.receive_nothing()


# H-98
def test_every_kind_of_body_is_received(client, rest):
    with client.connect() as connection, connection.get_queue_sender("orders") as sender:
        sender.send_messages(AmqpAnnotatedMessage(data_body=[b"one", b" two"]))
        sender.send_messages(AmqpAnnotatedMessage(value_body="text"))
        sender.send_messages(AmqpAnnotatedMessage(sequence_body=[[1], [2]]))
    assert rest.take().body == b"one two"
    assert rest.take().body == b"\xa1\x04text"
    assert len(rest.take().body) > 4


# HX-2.2, H-96, S-16
def test_a_batch_is_stored_whole_or_not_at_all(client, rest):
    first = {"Body": "first", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}}
    second = {"Body": "zweite ü", "UserProperties": {"Priority": "Low", "n": 3, "share": 0.5, "is": True}}
    bad = {"Body": "bad", "BrokerProperties": {"SessionId": "a", "PartitionKey": "b"}}
    assert rest.request("POST", "/orders/messages", json.dumps([first, bad]), BATCH).status == 403
    assert rest.request("POST", "/orders/messages", json.dumps([first, 7]), BATCH).status == 400
    assert rest.request("POST", "/orders/messages", "[]", BATCH).status == 400
    assert rest.take().status == 204
    assert rest.request("POST", "/orders/messages", json.dumps([first, second]), BATCH).status == 201
    one, two = receive(client), receive(client)
    assert (str(one), one.subject, one.time_to_live) == ("first", "M1", datetime.timedelta(seconds=40))
    assert (str(two), two.subject, two.content_type) == ("zweite ü", None, None)
    assert two.application_properties == {b"Priority": b"Low", b"n": 3, b"share": 0.5, b"is": True}


# HX-2.5, HX-2.6, HX-2.7, H-99
def test_a_locked_message_is_renewed_unlocked_and_completed(client, rest):
    client.send(ServiceBusMessage("mine", message_id="my id"))
    first = rest.peek_lock()
    assert rest.peek_lock().status == 204
    assert rest.request("POST", first.location).status == 200
    assert rest.request("PUT", first.location).status == 200
    second = rest.peek_lock()
    assert second.properties["DeliveryCount"] == 2
    for method in ("POST", "PUT", "DELETE"):
        lost = rest.request(method, first.location)
        assert lost.status == 404 and "<Code>404</Code>" in lost.text
    by_id = f"/orders/messages/my%20id/{second.properties['LockToken']}"
    assert rest.request("DELETE", by_id.replace("my", "your")).status == 404
    assert rest.request("DELETE", by_id).status == 200
    assert rest.request("DELETE", by_id).status == 404
    assert client.receive_nothing()


# S-94: a lock belongs to its token, whichever door it came by.
def test_a_lock_taken_at_one_door_is_settled_at_the_other(client, rest):
    client.send(ServiceBusMessage("one"), ServiceBusMessage("two"))
    with client.connect() as connection, connection.get_queue_receiver("orders") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        path = f"/orders/messages/{message.sequence_number}/{message.lock_token}"
        assert rest.request("DELETE", path).status == 200
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        locked = rest.peek_lock()
        assert locked.text == "two"
        tokens = [uuid.UUID(locked.properties["LockToken"])]
        receiver._settle_message_via_mgmt_link("completed", tokens)
    assert rest.request("DELETE", locked.location).status == 404


# H-90, S-104
def test_dead_letters_are_received_with_their_reason(unstarted_broker):
    unstarted_broker.start(flags=("--test-clock",))
    client, rest, clock = Client(unstarted_broker), Rest(unstarted_broker), Clock(unstarted_broker)
    with administration(unstarted_broker) as admin:
        admin.create_queue("jobs", dead_lettering_on_message_expiration=True)
    rest.send(b"expires", {"TimeToLive": 10}, to="jobs")
    rest.send(b"is refused", to="jobs")
    clock.advance("PT11S")
    with client.connect() as connection, connection.get_queue_receiver("jobs") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_SECONDS)
        receiver.dead_letter_message(message, reason="bad", error_description="very " * 1_000)
    dead = "jobs/$DeadLetterQueue"
    expired, refused = rest.peek_lock(dead), rest.peek_lock(dead)
    assert (expired.text, expired.headers["DeadLetterReason"]) == ("expires", '"TTLExpiredException"')
    assert (refused.text, refused.headers["DeadLetterReason"]) == ("is refused", '"bad"')
    assert json.loads(refused.headers["DeadLetterErrorDescription"]) == "very " * 1_000
    assert refused.location.startswith("/jobs/$DeadLetterQueue/messages/2/")
    assert rest.request("DELETE", expired.location).status == 200
    assert rest.request("PUT", refused.location).status == 200
    assert str(receive(client, "jobs", ServiceBusSubQueue.DEAD_LETTER)) == "is refused"
    assert rest.request("POST", f"/{dead}/messages", "x").status == 403


# H-91, S-40: there is no other way to schedule over HTTP.
def test_a_message_is_scheduled_over_http(unstarted_broker):
    unstarted_broker.start(flags=("--test-clock",))
    rest, clock = Rest(unstarted_broker), Clock(unstarted_broker)
    due = clock.now() + datetime.timedelta(hours=1)
    rest.send(b"later", {"ScheduledEnqueueTimeUtc": email.utils.format_datetime(due, usegmt=True)})
    assert rest.take().status == 204
    clock.advance("PT1H")
    answer = rest.take()
    assert (answer.text, answer.properties["SequenceNumber"]) == ("later", 2)


# S-180, H-90
def test_subscriptions_are_received_from_over_http(broker, rest):
    with administration(broker) as admin:
        admin.create_topic("news")
        admin.create_subscription("news", "ada")
        admin.create_subscription("news", "bo", max_delivery_count=1)
    rest.send(b"extra", {"Label": "L"}, {"Page": "1"}, to="news")
    answer = rest.take("news/subscriptions/ada")
    assert (answer.status, answer.text, answer.headers["Page"]) == (200, "extra", "1")
    assert answer.properties["EnqueuedSequenceNumber"] == 1
    locked = rest.peek_lock("news/Subscriptions/bo")
    assert rest.request("POST", locked.location).status == 200
    assert rest.request("PUT", locked.location).status == 200
    assert rest.take("news/subscriptions/bo").status == 204
    dead = rest.peek_lock("news/subscriptions/bo/$DeadLetterQueue")
    assert dead.headers["DeadLetterReason"] == '"MaxDeliveryCountExceeded"'
    assert rest.request("DELETE", dead.location).status == 200


# The tables of the runtime API, H-92, S-17
def test_what_cannot_be_done_is_refused_with_its_status(rest):
    for method, path in [("POST", "/none/messages"), ("POST", "/none/messages/head?timeout=0")]:
        answer = rest.request(method, path)
        assert answer.status == 410 and "SubCode=41000" in answer.text
    assert rest.request("DELETE", f"/none/messages/1/{uuid.uuid4()}").status == 410
    assert rest.request("DELETE", f"/orders/messages/1/{uuid.uuid4()}").status == 404
    assert rest.request("POST", "/orders/messages", key="wrong").status == 401
    assert rest.request("POST", "/orders/messages/head?timeout=soon").status == 400
    for bad in ("{", '{"TimeToLive":"soon"}', '{"Label":{}}', json.dumps({"MessageId": "x" * 129})):
        assert rest.request("POST", "/orders/messages", b"", {"BrokerProperties": bad}).status == 400, bad
    assert rest.request("POST", "/orders/messages", b"x" * (1024 * 1024 + 1)).status == 403
    assert rest.take().status == 204


# P1, S-10
def test_what_was_answered_with_201_is_there_after_kill(broker, client, rest):
    rest.send(b"kept", {"MessageId": "m"}, {"Priority": "1"})
    broker.restart()
    answer = rest.peek_lock()
    assert (answer.text, answer.properties["MessageId"], answer.headers["Priority"]) == ("kept", "m", "1")
    assert rest.request("DELETE", answer.location).status == 200
    broker.restart()
    assert rest.take().status == 204


# S-17: part by part, in and out, through both doors.
def test_a_large_message_crosses_both_ways(broker, client, rest):
    with administration(broker) as admin:
        admin.create_queue("large", max_message_size_in_kilobytes=20 * 1024)
    body = bytes(range(256)) * 32 * 1024
    rest.send(body, to="large")
    assert b"".join(receive(client, "large").body) == body
    client.send(ServiceBusMessage(body), queue="large")
    answer = rest.peek_lock("large")
    assert answer.body == body


def test_properties_in_headers_keep_their_case_and_the_length_is_none_of_them(rest, client):
    # K-30, S-285: as clients read them that take every header they do not know for a property.
    sent = {"orderId": 7, "Source-HOST": "x", "traceparent": "00-1-2-00", "Diagnostic-Id": "d", "tracestate": "a=b"}
    client.send(ServiceBusMessage("hello", application_properties=sent))
    answer = rest.take()
    known = {"brokerproperties", "content-type", "date", "transfer-encoding", "server", "strict-transport-security"}
    properties = {name: json.loads(value) for name, value in answer.headers.items() if name.lower() not in known}
    assert (answer.status, answer.text, properties) == (200, "hello", sent)
