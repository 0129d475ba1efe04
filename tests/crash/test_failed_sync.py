"""A failed sync is final: nobody is told `accepted` after it, the process ends, and what was accepted before is there."""

import os
import shutil
import subprocess
import time

import pytest
from amqp_values import DISPOSITION
from azure.servicebus import ServiceBusClient
from otobus import EMULATOR_KEY, POLICY, START_DEADLINE_SECONDS
from strace_log import TRACED, WRITES, parse
from wire import ACCEPTED, Sender, message

STRACE = os.environ.get("OTOBUS_STRACE") or shutil.which("strace")
SENDS = 200
# An `accepted` in a disposition: a described list with the code of the outcome.
ACCEPTED_STATE = bytes([0x00, 0x53, ACCEPTED])


def strace(log, nth):
    """Lets the nth sync of each thread fail, and all after it: a disk that is broken stays so."""
    fault = f"inject=fdatasync,fsync:error=EIO:when={nth}+"
    shown = ["-D", "-f", "-xx", "-yy", "-s", "12288", "-e", f"trace={','.join(TRACED)}", "-e", fault]
    return [STRACE, *shown, "-o", str(log), "--"]


@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8, 13, 40, 100])
def test_no_accepted_is_written_after_a_failed_sync_and_the_process_ends(unstarted_broker, tmp_path, nth):
    assert STRACE, "this test breaks the broker's disk with strace: install the package `strace`"
    broker = unstarted_broker.start()
    broker.stop()
    log = tmp_path / "strace.log"
    accepted = []
    try:
        broker.start(under=strace(log, nth))
    except AssertionError as refused:
        # The sync failed before the broker served anybody.
        assert "Input/output error" in str(refused)
    else:
        accepted = send_until_it_ends(broker)
        process, broker.process = broker.process, None
        assert process.wait(timeout=START_DEADLINE_SECONDS) != 0
        assert "Input/output error" in broker.log.read_text()
        assert len(accepted) < SENDS
    assert_no_accepted_after_a_failure(parse(log.read_text().splitlines()))

    broker.start()
    assert set(accepted) <= received(broker)


def test_a_sync_that_fails_while_the_server_stops_is_no_clean_end(unstarted_broker):
    assert STRACE, "this test breaks the broker's disk with strace: install the package `strace`"
    broker = unstarted_broker.start()
    Sender(broker.port, "orders", POLICY, EMULATOR_KEY).send(message("held", b"x"))
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_receiver("orders") as receiver:
            # The lock is written when the server stops.
            assert receiver.receive_messages(max_wait_time=5)
    process, broker.process = broker.process, None
    breaking = [STRACE, "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO", "-p", str(process.pid)]
    with subprocess.Popen(breaking, stderr=subprocess.PIPE, text=True) as strace:
        assert "attached" in strace.stderr.readline()
        process.terminate()
        status = process.wait(timeout=START_DEADLINE_SECONDS)
    assert status == 1
    assert "Input/output error" in broker.log.read_text()
    broker.start()
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_receiver("orders") as receiver:
            assert [message.message_id for message in receiver.peek_messages(5)] == ["held"]


def test_who_stops_a_server_that_starts_is_not_kept_waiting(unstarted_broker, tmp_path):
    assert STRACE, "this test slows the broker's disk down with strace: install the package `strace`"
    broker = unstarted_broker.start()
    broker.stop()
    log, ready = tmp_path / "strace.log", broker.folder / "ready.json"
    ready.unlink()
    # Half a second for each read: finding the tail takes a dozen of them.
    slow = [STRACE, "-D", "-f", "-yy", "-e", "trace=pread64", "-e", "inject=pread64:delay_enter=500000", "-o", str(log), "--"]
    flags = ["--config", str(broker.config), "--data", str(broker.data), "--listen-bus", "127.0.0.1:0", "--listen-items", "none", "--ready-file", str(ready)]
    with open(broker.log, "ab") as output:
        process = subprocess.Popen([*slow, os.environ["OTOBUS_BIN"], *flags], stdout=output, stderr=output)
    deadline = time.monotonic() + START_DEADLINE_SECONDS
    while not (log.exists() and ".segment" in log.read_text()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.terminate()
    assert process.wait(timeout=START_DEADLINE_SECONDS) == 0
    assert not ready.exists(), "it went on to serve"
    broker.start()


def send_until_it_ends(broker):
    accepted = []
    try:
        sender = Sender(broker.port, "orders", POLICY, EMULATOR_KEY)
        for number in range(SENDS):
            sender.send(message(f"message-{number}", b"x" * 100))
            accepted.append(f"message-{number}")
    except (OSError, EOFError, AssertionError, RuntimeError):
        pass
    return accepted


def assert_no_accepted_after_a_failure(calls):
    failed = [c for c in calls if c.name in ("fdatasync", "fsync") and c.result == -1]
    assert failed, "no sync failed"
    first = min(c.ended for c in failed)
    late = [
        c for c in calls
        if c.name in WRITES and c.is_socket and c.began > first
        and c.carries(bytes([0x00, 0x53, DISPOSITION])) and c.carries(ACCEPTED_STATE)
    ]
    assert not late, f"accepted after a failed sync: {late[0].text}"


def received(broker):
    ids = set()
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_receiver("orders", max_wait_time=2) as receiver:
            for message in receiver:
                ids.add(message.message_id)
                receiver.complete_message(message)
    return ids


def test_a_late_accepted_would_be_seen():
    octets = lambda *values: "".join(f"\\x{value:02x}" for value in values)
    failed = "3 fdatasync(7</data/segment>) = -1 EIO (Input/output error) (INJECTED)"
    told = f'2 sendto(9<TCP:[a->b]>, "{octets(0, 0x53, DISPOSITION)}{octets(0, 0x53, ACCEPTED)}", 6, 0, NULL, 0) = 6'
    assert_no_accepted_after_a_failure(parse([told, failed]))
    with pytest.raises(AssertionError):
        assert_no_accepted_after_a_failure(parse([failed, told]))
