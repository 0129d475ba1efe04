"""A sender that speaks AMQP 1.0 by hand: one connection, one link, one message in flight.

It exists so that a test knows exactly which bytes it wrote and what came back, which an SDK hides. It understands
just what a broker must answer to it and raises on everything else.
"""

import socket
import struct

from amqp_values import (
    ATTACH, BEGIN, DISPOSITION, FALSE, FLOW, NULL, OPEN, REFUSALS, TRANSFER, TRUE, binary, described, string, symbol, ubyte, uint,
)

ACCEPTED = 0x24
SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
TIMEOUT_SECONDS = 30


def message(message_id, body):
    header = described(0x70, TRUE)
    properties = described(0x73, string(message_id))
    return header + properties + b"\x00\x53\x75" + binary(body)


class Frames:
    """A connection that writes and reads frames."""

    def __init__(self, connected):
        self.socket = connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unread = b""

    def close(self):
        self.socket.close()

    def write(self, channel, body, frame_type=0):
        self.socket.sendall(struct.pack(">IBBH", len(body) + 8, 2, frame_type, channel) + body)

    def read(self, *expected):
        """The body of the next frame with one of these performatives; frames that refuse are errors, others are skipped."""
        while True:
            size, offset = struct.unpack(">IB", self.take(5))
            body = self.take(size - 5)[offset * 4 - 5:]
            if not body:
                continue
            assert body[:2] == b"\x00\x53", f"a descriptor must be a smallulong: {body.hex()}"
            if body[2] in expected:
                return body
            assert body[2] not in REFUSALS, f"refused: {body.hex()} {body!r}"

    def take(self, count):
        while len(self.unread) < count:
            octets = self.socket.recv(65536)
            assert octets, "the broker closed the connection"
            self.unread += octets
        taken, self.unread = self.unread[:count], self.unread[count:]
        return taken


class Sender(Frames):
    def __init__(self, port, queue, policy, key):
        super().__init__(socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS))
        self.next_delivery = 0
        self._log_in(policy, key)
        self._write(0, described(OPEN, string("wire"), string("localhost")))
        self._write(0, described(BEGIN, NULL, uint(0), uint(2048), uint(2048)))
        source, target = described(0x28, string("wire")), described(0x29, string(queue))
        self._write(0, described(ATTACH, string("wire"), uint(0), FALSE, ubyte(0), ubyte(0), source, target, NULL, NULL, uint(0)))
        for expected in (OPEN, BEGIN, ATTACH, FLOW):
            self._read_until(expected)

    def _log_in(self, policy, key):
        self.socket.sendall(b"AMQP\x03\x01\x00\x00")
        assert self.take(8) == b"AMQP\x03\x01\x00\x00"
        self._read_until(SASL_MECHANISMS)
        initial_response = b"\x00".join([b"", policy.encode(), key.encode()])
        self._write(1, described(SASL_INIT, symbol("PLAIN"), binary(initial_response), string("localhost")))
        outcome = self._read_until(SASL_OUTCOME)
        # sasl-code is the first field: 0x50 code, after the descriptor and a list8 or list32 head.
        list_head = {0xC0: 3, 0xD0: 9}[outcome[3]]
        assert outcome[3 + list_head:][:2] == b"\x50\x00", f"login refused: {outcome.hex()}"
        self.socket.sendall(b"AMQP\x00\x01\x00\x00")
        assert self.take(8) == b"AMQP\x00\x01\x00\x00"

    def send(self, encoded):
        """Sends one unsettled message and returns once the broker has settled it as accepted."""
        disposition = self.try_to_send(encoded)
        assert bytes([0x00, 0x53, ACCEPTED]) in disposition, f"not accepted: {disposition.hex()}"

    def try_to_send(self, encoded):
        """Sends one unsettled message and returns the disposition with which the broker has settled it."""
        delivery, self.next_delivery = self.next_delivery, self.next_delivery + 1
        tag = binary(struct.pack(">I", delivery))
        self._write(0, described(TRANSFER, uint(0), uint(delivery), tag, uint(0), FALSE, FALSE) + encoded)
        return self._read_until(DISPOSITION)

    def _write(self, frame_type, body):
        self.write(0, body, frame_type)

    def _read_until(self, expected):
        return self.read(expected)
