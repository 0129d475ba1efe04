"""A client that speaks AMQP 1.0 by hand, with one link: frame by frame, so that a test decides what is in memory where.

It understands just what a broker says to it and raises on everything else.
"""

import socket
import struct

from amqp_values import (
    ATTACH, BEGIN, DISPOSITION, FALSE, FLOW, NULL, OPEN, REFUSALS, TRANSFER, TRUE, binary, described, string, symbol, ubyte, uint,
)

SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
ACCEPTED = b"\x00\x53\x24\x45"
FRAME_BYTES = 65536
WINDOW = 2048
TIMEOUT_SECONDS = 60


def fields_of(performative):
    """The fields of a list, of the few types that matter here; and where the payload begins."""
    head, size = (6, performative[4] + 5) if performative[3] == 0xC0 else (12, struct.unpack(">I", performative[4:8])[0] + 8)
    at, end, fields = head, size, []
    while at < end:
        code = performative[at]
        if code in (0x40, 0x41, 0x42, 0x43, 0x44, 0x45):
            value, width = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}[code], 1
        elif code in (0x50, 0x52, 0x53, 0x56):
            value, width = performative[at + 1], 2
        elif code == 0x70:
            value, width = struct.unpack(">I", performative[at + 1:at + 5])[0], 5
        elif code == 0xA0:
            width = 2 + performative[at + 1]
            value = performative[at + 2:at + width]
        else:
            break
        fields.append(value)
        at += width
    return fields, end


class Link:
    def __init__(self, port, queue, is_receiver, policy, key, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_SECONDS)
        self.socket.connect(("127.0.0.1", port))
        self.unread = bytearray()
        self.next_delivery = 0
        self.frames = 0
        self._log_in(policy, key)
        self._write(0, described(OPEN, string("raw"), string("localhost"), uint(FRAME_BYTES)))
        self._write(0, described(BEGIN, NULL, uint(0), uint(WINDOW), uint(WINDOW)))
        source = described(0x28, string(queue if is_receiver else "raw"))
        target = described(0x29, string("raw" if is_receiver else queue))
        count = NULL if is_receiver else uint(0)
        role = TRUE if is_receiver else FALSE
        self._write(0, described(ATTACH, string("raw"), uint(0), role, ubyte(0), ubyte(0), source, target, NULL, NULL, count))
        for expected in (OPEN, BEGIN, ATTACH):
            self.read_until(expected)

    def _log_in(self, policy, key):
        self.socket.sendall(b"AMQP\x03\x01\x00\x00")
        assert self._take(8) == b"AMQP\x03\x01\x00\x00"
        self.read_until(SASL_MECHANISMS)
        response = b"\x00".join([b"", policy.encode(), key.encode()])
        self._write(1, described(SASL_INIT, symbol("PLAIN"), binary(response), string("localhost")))
        outcome, _ = fields_of(self.read_until(SASL_OUTCOME))
        assert outcome[0] == 0, f"login refused: {outcome}"
        self.socket.sendall(b"AMQP\x00\x01\x00\x00")
        assert self._take(8) == b"AMQP\x00\x01\x00\x00"

    def transfer(self, message, frame_bytes=60_000):
        """Writes one message as as many frames as it takes; the answer is still to come."""
        delivery, self.next_delivery = self.next_delivery, self.next_delivery + 1
        tag = binary(struct.pack(">I", delivery))
        for at in range(0, len(message), frame_bytes):
            more = TRUE if at + frame_bytes < len(message) else FALSE
            head = described(TRANSFER, uint(0), uint(delivery), tag, uint(0), FALSE, more)
            self._write(0, head + message[at:at + frame_bytes])

    def send(self, message):
        """Sends one message and returns the broker's answer to it."""
        self.transfer(message)
        return self.read_until(DISPOSITION)

    def credit(self, count):
        """Allows `count` deliveries from the first on."""
        self._write(0, described(FLOW, uint(self.frames + 1), uint(WINDOW), uint(0), uint(WINDOW), uint(0), uint(0), uint(count)))

    def receive(self):
        """One message, however many frames it has."""
        pieces, is_first = [], True
        while True:
            frame = self.read_until(TRANSFER)
            fields, payload_at = fields_of(frame)
            assert (fields[1] is not None) == is_first, "one delivery at a time"
            is_first = False
            pieces.append(bytes(frame[payload_at:]))
            self.frames += 1
            if self.frames % (WINDOW // 2) == 0:
                self._write(0, described(FLOW, uint(self.frames + 1), uint(WINDOW), uint(0), uint(WINDOW)))
            if not fields[5]:
                return b"".join(pieces)

    def complete(self, delivery):
        self._write(0, described(DISPOSITION, TRUE, uint(delivery), uint(delivery), TRUE, ACCEPTED))

    def close(self):
        self.socket.close()

    def _write(self, frame_type, body):
        self.socket.sendall(struct.pack(">IBBH", len(body) + 8, 2, frame_type, 0) + body)

    def read_until(self, expected):
        """The body of the next frame with this performative; frames that refuse are errors, others are skipped."""
        while True:
            size, offset = struct.unpack(">IB", self._take(5))
            body = self._take(size - 5)[offset * 4 - 5:]
            if not body:
                continue
            if body[2] == expected:
                return body
            assert body[2] not in REFUSALS, f"refused: {bytes(body[:2000])!r}"

    def _take(self, count):
        while len(self.unread) < count:
            octets = self.socket.recv(1 << 20)
            assert octets, "the broker closed the connection"
            self.unread += octets
        taken = self.unread[:count]
        del self.unread[:count]
        return taken
