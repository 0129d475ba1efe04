"""Keys and certificates appear whole and durable: each file is synced before it gets its name, the folder after."""

import os
import shutil

from strace_log import parse
from test_sync_before_accepted import STRACE, finished

RENAMES = ("rename", "renameat", "renameat2")


def strace(log):
    calls = ",".join([*RENAMES, "fsync", "fdatasync"])
    return [STRACE, "-D", "-f", "-yy", "-s", "12288", "-e", f"trace={calls}", "-o", str(log), "--"]


def test_keys_and_certificates_are_synced_before_they_are_named_and_their_folder_after(unstarted_broker, tmp_path):
    assert STRACE, "this test watches the broker with strace: install the package `strace`"
    log = tmp_path / "strace.log"
    broker = unstarted_broker.start(under=strace(log))
    pid, data = broker.process.pid, os.path.realpath(broker.data)
    broker.kill()
    calls = parse(finished(log, pid))

    def synced(path, after, before):
        """Whether a sync of exactly this file or folder returned between two calls."""
        return any(
            call.name in ("fsync", "fdatasync") and f"<{path}>" in call.text and call.result == 0
            and after < call.began and call.ended < before
            for call in calls
        )

    def renamed(old, new):
        (call,) = [
            call for call in calls if call.name in RENAMES and f'{data}/{old}"' in call.text and f'{data}/{new}"' in call.text
        ]
        assert call.result == 0
        return call

    end = calls[-1].ended + 1
    for old, new, files in (
        ("keys.new", "keys.toml", ["keys.new"]),
        ("tls.new", "tls", ["tls.new/ca.pem", "tls.new/server.pem", "tls.new/server.key", "tls.new"]),
    ):
        named = renamed(old, new)
        for file in files:
            assert synced(f"{data}/{file}", -1, named.began), f"{file} is not synced before it is called {new}"
        assert synced(data, named.ended, end), f"the folder is not synced after {new} got its name"


def test_the_files_are_made_in_one_place_only(unstarted_broker):
    broker = unstarted_broker.start()
    broker.kill()
    assert not [name for name in os.listdir(broker.data) if name.endswith(".new")]
    shutil.rmtree(broker.data / "tls")
    broker.start()
    assert sorted(os.listdir(broker.data / "tls")) == ["ca.pem", "server.key", "server.pem"]
