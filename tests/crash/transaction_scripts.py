"""Whole conversations with a transaction, frame by frame, as the clients of .NET and Java have them: login, claims, links, a
message that is received, two that are sent and one that is completed in a transaction over two queues, and its discharge.

A conversation stops after each frame that it has written and after each answer that it has read, and says what a broker
that is killed just then has to keep: nothing of the transaction, all of it, or one of the two.
"""

import base64
import hashlib
import hmac
import socket
import struct
import time
import urllib.parse

from amqp_values import ATTACH, BEGIN, DISPOSITION, FALSE, FLOW, NULL, OPEN, TRANSFER, TRUE
from transaction_peer import ACCEPTED, DECLARED, TRANSACTIONAL, VALUE, fields
from wire import SASL_INIT, SASL_MECHANISMS, SASL_OUTCOME, TIMEOUT_SECONDS, Frames

NOTHING, EITHER, EVERYTHING = "nothing", "either", "everything"
SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
CLAIMS, ENTITIES = 0, 1  # sessions, by their channels
CLAIM_REQUESTS, CLAIM_REPLIES = 0, 1  # handles on the first
COORDINATOR, FIRST, SECOND, RECEIVER = range(4)  # handles on the other
HOST = "localhost"


def sized(small, large, octets):
    if len(octets) < 256:
        return bytes([small, len(octets)]) + octets
    return struct.pack(">BI", large, len(octets)) + octets


def text(value):
    return sized(0xA1, 0xB1, value.encode())


def symbol(value):
    return sized(0xA3, 0xB3, value.encode())


def octets(value):
    return sized(0xA0, 0xB0, value)


def number(value, zero, small, large, form):
    """An unsigned number in the smallest form that takes it, as both clients write them."""
    if value == 0:
        return bytes([zero])
    return bytes([small, value]) if value < 256 else bytes([large]) + struct.pack(form, value)


def uint(value):
    return number(value, 0x43, 0x52, 0x70, ">I")


def ulong(value):
    return number(value, 0x44, 0x53, 0x80, ">Q")


def compound(small, large, count, body):
    if len(body) < 255 and count < 256:
        return bytes([small, len(body) + 1, count]) + body
    return struct.pack(">BII", large, len(body) + 4, count) + body


def described(code, *values):
    return bytes([0, 0x53, code]) + (compound(0xC0, 0xD0, len(values), b"".join(values)) if values else b"\x45")


def table(key, **entries):
    body = b"".join(key(name) + value for name, value in entries.items())
    return compound(0xC1, 0xD1, 2 * len(entries), body)


class Conversation(Frames):
    """What the two clients have in common. A subclass says what its client writes otherwise."""

    mechanism = None
    reply_address = None

    def __init__(self, port, policy, key):
        super().__init__(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS))
        self.policy, self.key = policy, key
        self.deliveries = 0
        self.transaction = self.received = None

    def steps(self, first, second, messages):
        """The conversation. Yields what was written or read last, and what the broker has to keep."""
        yield from self.log_in()
        yield from self.say("begin for claims", CLAIMS, self.begin(), BEGIN)
        yield from self.claim_links()
        for number, queue in enumerate((first, second)):
            yield from self.claim(number, queue)
        yield from self.say("begin", ENTITIES, self.begin(), BEGIN)
        yield from self.attach("coordinator", COORDINATOR, self.coordinator())
        yield from self.attach("first sender", FIRST, self.sender(FIRST, first))
        yield from self.attach("second sender", SECOND, self.sender(SECOND, second))
        yield from self.say("attach of the receiver", ENTITIES, self.receiver(RECEIVER, first), ATTACH)
        yield from self.say("credit", ENTITIES, self.credit(RECEIVER), TRANSFER, self.has_received)
        yield from self.say("declare", ENTITIES, self.command(described(0x31, *self.global_id)), DISPOSITION, self.is_declared)
        for handle, message in zip((FIRST, SECOND), messages):
            transfer = self.transfer(handle, self.within()) + message
            yield from self.say("send", ENTITIES, transfer, DISPOSITION, self.is_staged)
        completed = described(
            DISPOSITION, TRUE, uint(self.received), uint(self.received), FALSE, self.within(described(ACCEPTED)),
        )
        yield from self.say("complete", ENTITIES, completed, DISPOSITION, self.is_staged)
        discharge = described(0x32, octets(self.transaction), FALSE)
        self.write(ENTITIES, self.command(discharge))
        yield "discharge", EITHER
        state = self.state(self.read(DISPOSITION))
        assert state[2] == ACCEPTED, state.hex()
        yield "answer to discharge", EVERYTHING

    def say(self, what, channel, frame, answer, check=None):
        self.write(channel, frame)
        yield what, NOTHING
        body = self.read(answer)
        if check:
            check(body)
        yield f"answer to {what}", NOTHING

    def log_in(self):
        self.socket.sendall(SASL)
        yield "header for login", NOTHING
        assert self.take(8) == SASL
        self.read(SASL_MECHANISMS)
        yield "mechanisms", NOTHING
        self.write(0, described(SASL_INIT, symbol(self.mechanism), *self.login_fields()), frame_type=1)
        yield "login", NOTHING
        assert fields(self.read(SASL_OUTCOME))[0] == 0
        yield "outcome of login", NOTHING
        self.socket.sendall(AMQP)
        yield "header", NOTHING
        assert self.take(8) == AMQP
        yield from self.say("open", 0, self.open(), OPEN)

    def claim_links(self):
        requests = self.link_to("cbs:sender", CLAIM_REQUESTS, settled=1, source=described(0x28), target=described(0x29, text("$cbs")))
        yield from self.say("attach for claims", CLAIMS, requests, FLOW)
        replies = self.link_from("cbs:receiver", CLAIM_REPLIES, "$cbs", self.reply_address, settled=1, rcv=0)
        yield from self.say("attach for answers to claims", CLAIMS, replies, ATTACH)

    def claim(self, number, queue):
        """A credit for the answer, then the claim, as Java does; .NET gives more credit."""
        self.write(CLAIMS, self.flow(CLAIM_REPLIES, number, self.reply_credit))
        yield "credit for an answer", NOTHING
        audience = f"{self.scheme}://{HOST}/{queue}"
        properties = described(0x73, self.message_id(number), NULL, NULL, NULL, text(self.reply_address))
        application = b"\x00\x53\x74" + table(
            text, operation=text("put-token"), type=text("servicebus.windows.net:sastoken"), name=text(audience),
            expiration=b"\x83" + struct.pack(">q", (int(time.time()) + 3600) * 1000),
        )
        request = described(TRANSFER, uint(CLAIM_REQUESTS), uint(number), self.tag(), uint(0), TRUE)
        yield from self.say("claim", CLAIMS, request + properties + application + VALUE + text(self.token(audience)), TRANSFER, is_202)

    def token(self, audience):
        resource, expires = urllib.parse.quote_plus(audience), str(int(time.time()) + 3600)
        signature = hmac.new(self.key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
        signature = urllib.parse.quote_plus(base64.b64encode(signature).decode())
        return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={self.policy}"

    def attach(self, what, handle, frame):
        yield from self.say(f"attach of the {what}", ENTITIES, frame, FLOW)

    def link_to(self, name, handle, settled, source, target):
        return described(ATTACH, text(name), uint(handle), FALSE, ubyte(settled), ubyte(0), source, target, NULL, NULL, uint(0))

    def link_from(self, name, handle, address, here, settled, rcv):
        source, target = described(0x28, text(address)), described(0x29, text(here))
        return described(ATTACH, text(name), uint(handle), TRUE, ubyte(settled), ubyte(rcv), source, target)

    def flow(self, handle, seen, credit):
        return described(
            FLOW, uint(1), uint(2147483647), uint(self.deliveries), uint(2147483647), uint(handle), uint(seen), uint(credit),
        )

    def credit(self, handle):
        return self.flow(handle, 0, 1)

    def transfer(self, handle, state=NULL):
        delivery, self.deliveries = self.deliveries, self.deliveries + 1
        return described(TRANSFER, uint(handle), uint(delivery), self.tag(), uint(0), FALSE, FALSE, NULL, state)

    def command(self, body):
        return self.transfer(COORDINATOR) + VALUE + body

    def within(self, *outcome):
        return described(TRANSACTIONAL, octets(self.transaction), *outcome)

    def has_received(self, body):
        self.received = fields(body)[1]

    def is_declared(self, body):
        state = self.state(body)
        assert state[2] == DECLARED, state.hex()
        self.transaction = fields(state)[0]

    def is_staged(self, body):
        state = self.state(body)
        assert state[2] == TRANSACTIONAL, state.hex()
        transaction, outcome = fields(state)
        assert (transaction, outcome[2]) == (self.transaction, ACCEPTED), state.hex()

    def state(self, body):
        return fields(body)[4]


def ubyte(value):
    return bytes([0x50, value])


def is_202(body):
    assert b"status-code\x71\x00\x00\x00\xca" in body, body


class DotNet(Conversation):
    """Azure.Messaging.ServiceBus on Microsoft.Azure.Amqp: names are guids, tags have eight bytes."""

    mechanism = "MSSBCBS"
    scheme = "amqp"
    reply_address = "6f9619ff8b86d011b42d00c04fc964ff"
    reply_credit = 50
    global_id = (NULL,)
    name = "0c8b3c3e-5d1a-4c77-9d3f-0d1f4a1b2c3d"

    def login_fields(self):
        return ()

    def open(self):
        properties = table(symbol, product=text("azsdk-net-Messaging.ServiceBus"), platform=text("Linux"))
        return described(
            OPEN, text(f"{HOST}-1a2b3c4d"), text(HOST), uint(65536), b"\x60\xff\xff", uint(60000), NULL, NULL, NULL, NULL,
            properties,
        )

    def begin(self):
        return described(BEGIN, NULL, uint(1), uint(5000), uint(5000), uint(262143))

    def tag(self):
        return octets(struct.pack("<Q", self.deliveries + 1))

    def message_id(self, number):
        return text(f"request{number}")

    def coordinator(self):
        source = described(0x28, text(self.name), NULL, NULL, NULL, NULL, NULL, symbol("move"))
        return self.link_to(self.name, COORDINATOR, 0, source, described(0x30, NULL))

    def sender(self, handle, queue):
        name = f"{queue}-{handle}-{self.name}"
        return self.link_to(name, handle, 0, described(0x28, text(name)), described(0x29, text(queue)))

    def receiver(self, handle, queue):
        name = f"{queue}-{handle}-{self.name}"
        return self.link_from(name, handle, queue, name, settled=0, rcv=1)


class Java(Conversation):
    """azure-messaging-servicebus on proton-j: a source has its defaults written, a coordinator no address and no
    capabilities, tags are 32 hexadecimal digits, an answer to a claim gets one credit."""

    mechanism = "ANONYMOUS"
    scheme = "amqp"
    reply_address = "cbs-client-reply-to"
    reply_credit = 1
    global_id = ()
    defaults = (uint(0), symbol("session-end"), uint(0), FALSE)

    def login_fields(self):
        return octets(b""), text(HOST)

    def open(self):
        properties = table(symbol, product=text("azure-messaging-servicebus"), version=text("7.17.0"), platform=text("Linux"))
        return described(
            OPEN, text("MF_1a2b3c_1763445600000"), text(HOST), uint(65536), b"\x60\xff\xff", uint(30000), NULL, NULL, NULL, NULL,
            properties,
        )

    def begin(self):
        return described(BEGIN, NULL, uint(1), uint(2147483647), uint(2147483647), uint(65535))

    def tag(self):
        return octets(f"{self.deliveries + 0x1a2b:032x}".encode())

    def message_id(self, number):
        return ulong(number)

    def coordinator(self):
        return self.link_to("coordinator", COORDINATOR, 0, described(0x28, NULL, *self.defaults), described(0x30))

    def sender(self, handle, queue):
        target = described(0x29, text(queue), *self.defaults)
        return self.link_to(f"{queue}_{handle}_9f8e7d", handle, 0, described(0x28, NULL, *self.defaults), target)

    def receiver(self, handle, queue):
        source, target = described(0x28, text(queue), *self.defaults), described(0x29, NULL, *self.defaults)
        return described(ATTACH, text(f"{queue}_{handle}_5c4b3a"), uint(handle), TRUE, ubyte(0), ubyte(1), source, target)

