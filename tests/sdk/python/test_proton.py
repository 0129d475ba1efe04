"""Qpid Proton, a plain AMQP 1.0 client that knows nothing of Service Bus: SASL PLAIN with a policy and its key."""

import time

import pytest
from otobus import EMULATOR_KEY, POLICY
from proton import ConnectionException, Delivery, Message, SSLDomain, symbol, timestamp
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, LinkDetached

WAIT_SECONDS = 10


def connected(broker, is_secure=False, key=EMULATOR_KEY, **options):
    domain = None
    if is_secure:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(broker.ca)
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    scheme = "amqps" if is_secure else "amqp"
    options.setdefault("allowed_mechs", "PLAIN")
    # Proton compares a certificate with names only, not with addresses.
    return BlockingConnection(
        f"{scheme}://{POLICY}:{key}@localhost:{broker.port}", timeout=WAIT_SECONDS, ssl_domain=domain, **options
    )


@pytest.fixture(params=["plain", "tls"])
def connection(broker, request):
    connection = connected(broker, is_secure=request.param == "tls")
    yield connection
    connection.close()


def take(receiver, settle):
    message = receiver.receive(timeout=WAIT_SECONDS)
    settle()
    return message


def test_messages_are_sent_accepted_released_and_rejected(connection):
    sender = connection.create_sender("orders")
    for number in range(3):
        message = Message(body={"number": number}, id=f"m{number}", properties={"k": number}, subject="s", durable=True)
        assert sender.send(message).remote_state == Delivery.ACCEPTED
    receiver = connection.create_receiver("orders", credit=1)
    first = take(receiver, receiver.accept)
    assert (first.id, first.body, first.properties, first.subject) == ("m0", {"number": 0}, {"k": 0}, "s")
    assert first.annotations[symbol("x-opt-sequence-number")] == 1
    # S-59: what is released is delivered again, and was delivered once more
    assert take(receiver, lambda: receiver.release(delivered=True)).id == "m1"
    others = [take(receiver, receiver.reject) for _ in range(2)]
    assert {(each.id, each.delivery_count) for each in others} == {("m1", 1), ("m2", 0)}
    receiver.close()
    dead = connection.create_receiver("orders/$DeadLetterQueue", credit=1)
    assert {take(dead, dead.accept).id for _ in range(2)} == {"m1", "m2"}


@pytest.mark.parametrize("body", [b"bytes", "text", [1, 2, "x"], None, 1.5, {"a": [1, {"b": True}]}, "x" * 200_000])
def test_bodies_come_back_as_they_were_sent(broker, body):
    with_connection = connected(broker)
    with_connection.create_sender("orders").send(Message(body=body))
    receiver = with_connection.create_receiver("orders", credit=1, options=AtMostOnce())
    message = receiver.receive(timeout=WAIT_SECONDS)
    # Bytes are a view of memory that ends with the message.
    came = bytes(message.body) if isinstance(message.body, memoryview) else message.body
    assert came == body
    with_connection.close()


def test_a_message_can_be_scheduled_by_its_annotation(connection):
    message = Message(body="later")
    due = time.time() + 1
    message.annotations = {symbol("x-opt-scheduled-enqueue-time"): timestamp(int(due * 1000))}
    connection.create_sender("orders").send(message)
    receiver = connection.create_receiver("orders", credit=1)
    assert take(receiver, receiver.accept).body == "later"
    assert time.time() >= due - 0.001


def test_what_is_missing_or_forbidden_is_refused_by_name(broker, connection):
    for create in (connection.create_sender, connection.create_receiver):
        with pytest.raises(LinkDetached, match="amqp:not-found.*nowhere"):
            create("nowhere")
    with pytest.raises(ConnectionException, match="amqp:unauthorized-access"):
        connected(broker, key="wrong")
    stranger = connected(broker, allowed_mechs="ANONYMOUS")
    with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
        stranger.create_sender("orders")
    stranger.close()
