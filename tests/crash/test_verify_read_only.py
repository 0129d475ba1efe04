"""`otobus verify` on a file system that nobody can write to.

It needs a file system of its own, so it is skipped where none may be mounted.
"""

import os
import subprocess

import pytest
from otobus import EMULATOR_KEY, POLICY, Otobus
from wire import Sender, message


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "otobus-test", str(folder)], capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"no file system may be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def verify(data):
    command = [os.environ["OTOBUS_BIN"], "verify", "--data", str(data)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_what_nobody_can_write_to_is_verified(tmp_path, disk):
    broker = Otobus(tmp_path)
    broker.data = disk / "data"
    broker.start()
    Sender(broker.port, "orders", POLICY, EMULATOR_KEY).send(message("kept", b"x" * 1_000))
    broker.stop()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    whole = verify(broker.data)
    assert whole.returncode == 0 and "as it was written" in whole.stdout, whole.stdout
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    (broker.data / "bus" / "0" / "0000000000000001.segment").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    damaged = verify(broker.data)
    assert damaged.returncode == 1 and "0000000000000001.segment" in damaged.stdout, damaged.stdout
