"""A client that does transactions, frame by frame: what it writes is what .NET writes (a coordinator whose link has the name
of its source, transfers and dispositions in a transactional state), and a test decides after which frame the broker dies.
"""

import struct

from amqp_values import (
    ATTACH, DISPOSITION, FALSE, FLOW, NULL, TRANSFER, TRUE, binary, described, string, symbol, ubyte, uint,
)
from wire import Sender

COORDINATOR, OTHER, RECEIVER = 1, 2, 3
ACCEPTED, REJECTED, DECLARED, TRANSACTIONAL = 0x24, 0x25, 0x33, 0x34
VALUE = b"\x00\x53\x77"


def fields(body):
    """The fields of a performative or state; what is neither number, truth, binary nor described stays bytes."""
    at, width = (3, 1) if body[3] == 0xC0 else (3, 4)
    at += 1 + width
    count = int.from_bytes(body[at:at + width], "big")
    at += width
    found = []
    for _ in range(count):
        value, at = decoded(body, at)
        found.append(value)
    return found


def decoded(body, at):
    code = body[at]
    if code == 0x00:
        _, end = decoded(body, at + 1)
        _, end = decoded(body, end)
        return body[at:end], end
    known = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x45: []}
    if code in known:
        return known[code], at + 1
    size = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}.get(code >> 4)
    if size is not None:
        return int.from_bytes(body[at + 1:at + 1 + size], "big"), at + 1 + size
    width = 1 if code >> 4 in (0xA, 0xC, 0xE) else 4
    length = int.from_bytes(body[at + 1:at + 1 + width], "big")
    start = at + 1 + width
    return body[start:start + length], start + length


class TransactionPeer(Sender):
    """Has a sender to `queue` on handle 0, a coordinator, a sender to `other`, and perhaps a receiver."""

    def __init__(self, port, queue, other, policy, key):
        super().__init__(port, queue, policy, key)
        name = "0c8b3c3e-5d1a-4c77-9d3f-0d1f4a1b2c3d"
        source = described(0x28, string(name), NULL, NULL, NULL, NULL, NULL, symbol("move"))
        self._attach(name, COORDINATOR, FALSE, source, described(0x30, NULL))
        self._attach("other", OTHER, FALSE, described(0x28, string("wire")), described(0x29, string(other)))
        self.transaction = None

    def _attach(self, name, handle, role, source, target, settled=0):
        self._write(0, described(
            ATTACH, string(name), uint(handle), role, ubyte(settled), ubyte(0), source, target, NULL, NULL, uint(0),
        ))
        self._read_until(ATTACH)
        if role == FALSE:
            self._read_until(FLOW)

    def _transfer(self, handle, payload, state=NULL):
        delivery, self.next_delivery = self.next_delivery, self.next_delivery + 1
        tag = binary(struct.pack(">I", delivery))
        transfer = described(TRANSFER, uint(handle), uint(delivery), tag, uint(0), FALSE, FALSE, NULL, state)
        self._write(0, transfer + payload)

    def _within(self, *outcome):
        return described(TRANSACTIONAL, binary(self.transaction), *outcome)

    def answer(self):
        """The state of the next disposition: its code and its fields."""
        state = fields(self._read_until(DISPOSITION))[4]
        return state[2], fields(state)

    def declare(self):
        self._transfer(COORDINATOR, VALUE + described(0x31, NULL))

    def declared(self):
        code, (transaction, *_) = self.answer()
        assert code == DECLARED, hex(code)
        self.transaction = transaction

    def discharge(self, fail=False):
        self._transfer(COORDINATOR, VALUE + described(0x32, binary(self.transaction), TRUE if fail else FALSE))

    def send_within(self, handle, encoded):
        self._transfer(handle, encoded, self._within())

    def complete_within(self, delivery):
        outcome = described(ACCEPTED)
        self._write(0, described(DISPOSITION, TRUE, uint(delivery), uint(delivery), FALSE, self._within(outcome)))

    def lock_one(self, queue):
        """Receives and locks one message, and returns the id of its delivery."""
        self._attach("receiver", RECEIVER, TRUE, described(0x28, string(queue)), described(0x29, string("here")))
        self._credit(RECEIVER, 1)
        return fields(self._read_until(TRANSFER))[1]

    def _credit(self, handle, count, drain=FALSE):
        self._write(0, described(
            FLOW, uint(0), uint(2048), uint(self.next_delivery), uint(2048), uint(handle), uint(0), uint(count), NULL, drain,
        ))

    def take_all(self, handle, queue, marks):
        """Takes all messages of a queue for good, and returns which of the `marks` are in them, in their order."""
        self._attach(f"take-{handle}", handle, TRUE, described(0x28, string(queue)), described(0x29, string("here")), settled=1)
        self._credit(handle, 100, drain=TRUE)
        taken = []
        while True:
            body = self.read(TRANSFER, FLOW)
            if body[2] == FLOW:
                return taken
            taken += [mark for mark in marks if mark.encode() in body]
