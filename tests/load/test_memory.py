"""What the broker holds in memory, whatever its clients do: large messages and stuck consumers."""

import random
import socket
import sys

import pytest
from amqp_values import DISPOSITION, binary, described, string
from otobus import EMULATOR_KEY, POLICY, Otobus
from raw import ACCEPTED, Link, fields_of

MEBIBYTE = 1024 * 1024
# The largest message there is: 102,400 kilobytes, less a little for its properties.
LARGE_BODY_BYTES = 100 * MEBIBYTE - 4096
LARGE_MESSAGES = 3
# Each of them is given 2,000 messages of 10 KB ahead, which would be 200 MB.
STUCK = 10
BACKLOG = 20_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def broker(tmp_path):
    otobus = Otobus(tmp_path)
    settings = '[[queue]]\nname = "large"\nmax_message_size_in_kilobytes = 102400\n\n[[queue]]\nname = "small"\n'
    (tmp_path / "otobus.toml").write_text(settings)
    otobus.start()
    yield otobus
    otobus.kill()
    print(otobus.log.read_text())


def open_link(broker, queue, is_receiver, **options):
    return Link(broker.port, queue, is_receiver, POLICY, EMULATOR_KEY, **options)


def message(message_id, body):
    return described(0x70, b"\x41") + described(0x73, string(message_id)) + b"\x00\x53\x75" + binary(body)


def peak_bytes(broker):
    """The most that the broker ever had resident."""
    with open(f"/proc/{broker.process.pid}/status") as status:
        kilobytes = next(line.split()[1] for line in status if line.startswith("VmHWM"))
    return int(kilobytes) * 1024


def forget_peak(broker):
    """From here on the peak counts from what is resident now."""
    with open(f"/proc/{broker.process.pid}/clear_refs", "w") as clear:
        clear.write("5")


def test_a_message_of_100_megabytes_never_lies_in_memory(broker):
    # S-17, P7
    sender, receiver = open_link(broker, "large", False), open_link(broker, "large", True)
    receiver.credit(100)
    assert ACCEPTED[:3] in sender.send(message("small", b"x" * 1000))
    assert receiver.receive().endswith(binary(b"x" * 1000))
    forget_peak(broker)
    before = peak_bytes(broker)
    body = random.Random(7).randbytes(LARGE_BODY_BYTES)
    grown = []
    for _ in range(LARGE_MESSAGES):
        forget_peak(broker)
        assert ACCEPTED[:3] in sender.send(message("large", body))
        received = receiver.receive()
        assert received.endswith(b"\x00\x53\x75" + binary(body))
        assert b"x-opt-sequence-number" in received[:4096]
        grown.append(peak_bytes(broker) - before)
    told = ", ".join(f"{bytes_ / MEBIBYTE:.1f}" for bytes_ in grown)
    print(f"peak memory grew by {told} MiB for messages of {len(body) / MEBIBYTE:.1f} MiB")
    # Parts on their way: in the connection, in the journal's hands until they are written, and at the receiver. While the disk stalls
    # more of them wait, up to a budget of 64 MiB, so the calmest of the messages counts.
    assert min(grown) < len(body) / 8
    receiver.complete(1 + LARGE_MESSAGES)


def test_a_large_message_survives_a_kill_and_a_wrong_one_leaves_nothing(broker):
    sender = open_link(broker, "large", False)
    body = random.Random(8).randbytes(5 * MEBIBYTE)
    assert ACCEPTED[:3] not in sender.send(message("bad", body) + b"junk after the end")
    assert ACCEPTED[:3] in sender.send(message("good", body))
    broker.restart()
    receiver = open_link(broker, "large", True)
    receiver.credit(1)
    assert receiver.receive().endswith(binary(body))


def test_consumers_that_never_read_pin_no_more_than_their_budget(broker):
    # P7: a client may grant two billion; the broker holds an output and a run for it, and the places of some messages.
    sender = open_link(broker, "small", False)
    body = random.Random(9).randbytes(10_000)
    for at in range(0, BACKLOG, 200):
        for number in range(at, at + 200):
            sender.transfer(message(str(number), body))
        wait_until_accepted(sender, at + 199)
    forget_peak(broker)
    before = peak_bytes(broker)
    stuck = [open_link(broker, "small", True, receive_buffer=4096) for _ in range(STUCK)]
    for link in stuck:
        link.credit(2**31 - 1)
        assert link.socket.recv(1, socket.MSG_PEEK), "it is being served"
    # Answered on a connection of its own, after all that the stuck ones have asked for.
    other = open_link(broker, "small", False)
    assert ACCEPTED[:3] in other.send(message("last", b"y"))
    grown = peak_bytes(broker) - before
    print(f"peak memory grew by {grown / MEBIBYTE:.1f} MiB for {STUCK} stuck consumers of {BACKLOG // 100} MB")
    assert 0 < grown < STUCK * 2 * MEBIBYTE


def wait_until_accepted(sender, delivery):
    while True:
        fields, _ = fields_of(sender.read_until(DISPOSITION))
        if max(number for number in fields[1:3] if number is not None) >= delivery:
            return
