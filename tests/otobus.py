"""The built broker as a process of its own, for black-box tests.

Each `Otobus` has its own folder (configuration and data) and its own free ports. It can be killed and started
again on the same data, and it is always ended by its process id. The binary is named by OTOBUS_BIN.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

# A start takes milliseconds; this bounds a start that never comes.
START_DEADLINE_SECONDS = 60
POLICY = "RootManageSharedAccessKey"
EMULATOR_KEY = "SAS_KEY_VALUE"
ITEMS_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="


class Otobus:
    def __init__(self, folder, queues=("orders",), has_items=False):
        self.folder = Path(folder)
        self.data = self.folder / "data"
        self.log = self.folder / "otobus.log"
        self.process = None
        self.port = None
        self.items_port = None
        self.has_items = has_items
        config = "".join(f'[[queue]]\nname = "{name}"\n\n' for name in queues)
        self.config = self.folder / "otobus.toml"
        self.config.write_text(config)

    def start(self, under=(), flags=()):
        """Starts the broker with more `flags` and returns once it serves. `under` is a command to run it under."""
        assert self.process is None, "the broker already runs"
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        arguments = [
            os.environ["OTOBUS_BIN"],
            *(["--config", str(self.config)] if self.config else []),
            "--data", str(self.data),
            "--listen-bus", "127.0.0.1:0",
            "--listen-items", "127.0.0.1:0" if self.has_items else "none",
            "--ready-file", str(ready),
            *flags,
        ]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*under, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.port = self._wait_for_port(ready)
        return self

    def _wait_for_port(self, ready):
        deadline = time.monotonic() + START_DEADLINE_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                status, self.process = self.process.returncode, None
                raise AssertionError(f"the broker ended with status {status}:\n{self.log.read_text()}")
            if ready.exists():
                told = json.loads(ready.read_text())
                for address in told["items"]:
                    self.items_port = int(address.rsplit(":", 1)[1])
                return int(told["bus"][0].rsplit(":", 1)[1])
            time.sleep(0.002)
        self.kill()
        raise AssertionError(f"the broker was not ready in {START_DEADLINE_SECONDS} s:\n{self.log.read_text()}")

    def kill(self):
        """Ends the broker as a power cut would: SIGKILL, nothing flushed, nothing said."""
        self._end(signal.SIGKILL)

    def stop(self):
        """Ends the broker as an operator would and returns its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, sign):
        if self.process is None:
            return None
        process, self.process = self.process, None
        process.send_signal(sign)
        return process.wait(timeout=START_DEADLINE_SECONDS)

    def restart(self, flags=()):
        """SIGKILL, then a new process on the same data."""
        self.kill()
        return self.start(flags=flags)

    @property
    def ca(self):
        """The certificate authority that clients are told to trust."""
        return str(self.data / "tls" / "ca.pem")

    def connection_string(self, key=EMULATOR_KEY):
        return (
            f"Endpoint=sb://127.0.0.1:{self.port};SharedAccessKeyName={POLICY};"
            f"SharedAccessKey={key};UseDevelopmentEmulator=true;"
        )

    def items_endpoint(self, scheme="https"):
        return f"{scheme}://localhost:{self.items_port}/"
