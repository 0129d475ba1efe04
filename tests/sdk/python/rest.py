"""Messages over HTTP, as a client without any SDK reaches them: http.client and a SAS token."""

import http.client
import json

from clock import token


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def text(self):
        return self.body.decode()

    @property
    def properties(self):
        return json.loads(self.headers["BrokerProperties"])

    @property
    def location(self):
        """The path of the message that was locked."""
        return "/" + self.headers["Location"].split("/", 3)[3]


class Rest:
    """Each request has a connection of its own, so that nothing but the broker remembers anything."""

    def __init__(self, broker):
        self.broker = broker

    def request(self, method, path, body=None, headers=None, **options):
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.port, timeout=60)
        try:
            signed = {"Authorization": token(f"http://127.0.0.1:{self.broker.port}/", **options)}
            connection.request(method, path, body, {**signed, **(headers or {})})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def send(self, body=b"", properties=None, headers=None, to="orders"):
        headers = dict(headers or {})
        if properties is not None:
            headers["BrokerProperties"] = json.dumps(properties)
        answer = self.request("POST", f"/{to}/messages", body, headers)
        assert (answer.status, answer.body) == (201, b""), answer.text

    def peek_lock(self, source="orders"):
        return self.request("POST", f"/{source}/messages/head?timeout=0")

    def take(self, source="orders"):
        return self.request("DELETE", f"/{source}/messages/head?timeout=0")
