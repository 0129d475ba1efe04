"""The broker's test clock, as a test reaches it: plain HTTP and a SAS token."""

import base64
import hashlib
import hmac
import json
import time
import urllib.parse
import urllib.request
from datetime import datetime

from otobus import EMULATOR_KEY, POLICY


def token(resource, key=EMULATOR_KEY, policy=POLICY, seconds=3600):
    resource = urllib.parse.quote_plus(resource.lower())
    expiry = int(time.time()) + seconds
    signed = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote_plus(base64.b64encode(signed))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={policy}"


class Clock:
    """Time as the broker has it, in one namespace."""

    def __init__(self, broker, host="localhost", key=EMULATOR_KEY):
        self.broker = broker
        self.host = host
        self.key = key

    def ask(self, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.broker.port}/$otobus/clock",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": token(f"http://{self.host}/", self.key), "Host": self.host},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def now(self):
        return self.read(self.ask()["now"])

    def advance(self, by):
        """Moves time and returns what happened."""
        return self.ask({"advance": by})

    @staticmethod
    def read(text):
        return datetime.fromisoformat(text)

    @staticmethod
    def text(instant):
        """An instant as the broker writes it."""
        return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant.microsecond // 1000:03}Z"
