"""Values and performatives of AMQP 1.0 as bytes, for tests that write frames by hand."""

import struct

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
REFUSALS = {DETACH, END, CLOSE}

NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"


def uint(number):
    return struct.pack(">BI", 0x70, number)


def ubyte(number):
    return struct.pack(">BB", 0x50, number)


def string(text):
    return struct.pack(">BI", 0xB1, len(text.encode())) + text.encode()


def symbol(text):
    return struct.pack(">BI", 0xB3, len(text)) + text.encode()


def binary(octets):
    return struct.pack(">BI", 0xB0, len(octets)) + octets


def described(code, *fields):
    body = b"".join(fields)
    return struct.pack(">BBBBII", 0, 0x53, code, 0xD0, len(body) + 4, len(fields)) + body
