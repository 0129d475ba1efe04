"""`accepted` means stored: the broker's sync returns before the answer is written to the socket."""

import os
import shutil
import time

import pytest
from amqp_values import DISPOSITION
from otobus import EMULATOR_KEY, POLICY
from strace_log import FILE_WRITES, READS, TRACED, WRITES, parse
from wire import Sender, message

SENDS = 300
# Each sync returns this much later than the disk was done. A broker that answers without waiting for it would
# then be seen to do so every time, not only when two threads happen to race.
SYNC_DELAY_MICROSECONDS = 500
STRACE = os.environ.get("OTOBUS_STRACE") or shutil.which("strace")


def strace(log):
    delay = f"inject=fdatasync,fsync:delay_exit={SYNC_DELAY_MICROSECONDS}"
    # `-D`: strace stands aside, and the process we start and end is the broker itself. Of each write three pages are shown: it
    # begins with what comes before it in its first page.
    shown = ["-D", "-f", "-xx", "-yy", "-s", "12288", "-e", f"trace={','.join(TRACED)}", "-e", delay]
    return [STRACE, *shown, "-o", str(log), "--"]


def finished(log, pid):
    """The lines of a trace, once strace has written that the broker is gone."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = log.read_text().splitlines()
        if any(line.startswith(f"{pid} ") and line.endswith("+++") for line in lines):
            return lines
        time.sleep(0.01)
    pytest.fail("strace did not see the broker end")


def test_in_each_of_300_sends_the_sync_returns_before_the_answer_is_written(unstarted_broker, tmp_path):
    assert STRACE, "this test watches the broker with strace: install the package `strace`"
    log = tmp_path / "strace.log"
    broker = unstarted_broker.start(under=strace(log))
    sender = Sender(broker.port, "orders", POLICY, EMULATOR_KEY)
    marks = [f"mark-{number:04}-of-{SENDS}" for number in range(SENDS)]
    for mark in marks:
        sender.send(message(mark, b"x" * 1024))
    sender.close()
    pid = broker.process.pid
    broker.kill()

    calls = parse(finished(log, pid))
    at = 0
    for mark in marks:
        at = assert_stored_before_answered(calls, at, mark)


def test_an_answer_before_the_sync_would_be_seen():
    octets = "".join(f"\\x{octet:02x}" for octet in b"mark")
    disposition = f'sendto(9<TCP:[a->b]>, "\\x00\\x53\\x{DISPOSITION:02x}", 3, 0, NULL, 0'
    read = f'2 recvfrom(9<TCP:[a->b]>, "{octets}", 4, 0, NULL, NULL) = 4'
    written = f'3 pwrite64(7</data/segment>, "{octets}", 4, 0) = 4'
    begun, returned = "3 fdatasync(7</data/segment> <unfinished ...>", "3 <... fdatasync resumed>) = 0 (DELAYED)"
    answered = f"2 {disposition}) = 3"

    assert_stored_before_answered(parse([read, written, begun, returned, answered]), 0, "mark")
    for wrong in (
        [read, written, begun, answered, returned],
        [read, written, answered, begun, returned],
        [read, begun, returned, written, answered],
        [read, written, begun, returned.replace("= 0", "= -1 EIO"), answered],
    ):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            assert_stored_before_answered(parse(wrong), 0, "mark")


def assert_stored_before_answered(calls, start, mark):
    """Finds the four steps of one send in the trace, in order; returns where the answer was written."""
    read = step(calls, start, f"reading {mark}", lambda c: c.name in READS and c.carries(mark.encode()))
    written = step(
        calls, read, f"writing {mark} to the journal",
        lambda c: c.name in FILE_WRITES and not c.is_socket and c.carries(mark.encode()),
    )
    assert calls[read].ended < calls[written].began
    synced = step(
        calls, written, f"syncing {mark}",
        lambda c: c.name in ("fdatasync", "fsync") and c.began > calls[written].ended,
    )
    assert calls[synced].result == 0, f"the sync after {mark} failed: {calls[synced].text}"
    answered = step(
        calls, read, f"answering {mark}",
        lambda c: c.name in WRITES and c.is_socket and c.carries(bytes([0x00, 0x53, DISPOSITION])),
    )
    assert calls[synced].ended < calls[answered].began, f"{mark} was answered before its sync returned"
    return answered


def step(calls, start, what, matches):
    for index in range(start, len(calls)):
        if matches(calls[index]):
            return index
    pytest.fail(f"the trace does not show the broker {what}")
