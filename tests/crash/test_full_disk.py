"""A file system that is really full: sends are refused, receiving and completing go on, nothing is lost by a kill, and
sending resumes by itself when there is room.

It needs a file system of its own, so it is skipped where none may be mounted.
"""

import subprocess
import time

import pytest
from azure.servicebus import ServiceBusClient
from otobus import EMULATOR_KEY, POLICY, Otobus
from wire import ACCEPTED, Sender, message

# Room for the reserve of two segments, a spare, and a few segments of messages; and little more than the reserve and what
# a drained journal keeps.
DISKS = ["size=200m", "size=160m"]
BODY = b"x" * 60_000
# More than the disk can hold.
MOST_SENDS = 5_000
# A full disk is asked again each second; this bounds a wait that never ends.
PATIENCE_SECONDS = 15


@pytest.fixture(params=DISKS)
def small_disk(tmp_path, request):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", request.param, "otobus-test", str(folder)], capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def full_broker(tmp_path, small_disk):
    broker = Otobus(tmp_path)
    broker.data = small_disk / "data"
    yield broker.start()
    broker.kill()
    print(broker.log.read_text())


def is_accepted(disposition):
    return bytes([0x00, 0x53, ACCEPTED]) in disposition


def fill(broker, name):
    """Sends until a send is refused; the ids of what was accepted, and the refusal."""
    sender = Sender(broker.port, "orders", POLICY, EMULATOR_KEY)
    accepted = []
    for number in range(MOST_SENDS):
        disposition = sender.try_to_send(message(f"{name}-{number}", BODY))
        if not is_accepted(disposition):
            sender.close()
            return accepted, disposition
        accepted.append(f"{name}-{number}")
    raise AssertionError(f"{len(accepted)} messages were accepted and the disk is not full")


def receive(broker, most):
    """Receives and completes up to `most` messages; their ids."""
    ids = []
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_receiver("orders") as receiver:
            while len(ids) < most:
                batch = receiver.receive_messages(max_message_count=min(200, most - len(ids)), max_wait_time=2)
                if not batch:
                    break
                for received in batch:
                    receiver.complete_message(received)
                    ids.append(received.message_id)
    return ids


def test_a_full_disk_refuses_sends_and_nothing_else_and_loses_nothing_when_killed(full_broker):
    # R9
    broker = full_broker
    accepted, refusal = fill(broker, "first")
    assert b"amqp:resource-limit-exceeded" in refusal, refusal
    assert len(accepted) > 100

    broker.restart()
    received = receive(broker, 20)
    assert len(received) == 20, "receiving and completing go on"

    # The kill came in between: what was completed stays gone, what was accepted is there.
    broker.restart()
    received += receive(broker, MOST_SENDS)
    assert sorted(received) == sorted(accepted)

    deadline = time.monotonic() + PATIENCE_SECONDS
    sender = Sender(broker.port, "orders", POLICY, EMULATOR_KEY)
    while not is_accepted(disposition := sender.try_to_send(message("resumed", BODY))):
        assert time.monotonic() < deadline, f"sending does not resume: {disposition}"
        time.sleep(0.1)
    sender.close()
    assert receive(broker, 10) == ["resumed"]
    # And it can be filled again.
    again, refusal = fill(broker, "again")
    assert again and b"amqp:resource-limit-exceeded" in refusal
