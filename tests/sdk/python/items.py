"""How the tests reach the items: clients of the official SDK, and the test clock of the items' own port."""

import base64
import hashlib
import hmac
import json
import urllib.error
import urllib.request
from email.utils import formatdate
from urllib.parse import quote

from azure.cosmos import CosmosClient
from azure.cosmos.aio import CosmosClient as AsyncClient
from otobus import ITEMS_KEY


def connect(broker, scheme="https", key=ITEMS_KEY, **options):
    """A client as a user makes it. It does not check certificates of localhost by itself."""
    return CosmosClient(broker.items_endpoint(scheme), key, **options)


def connect_async(broker, scheme="https", key=ITEMS_KEY, **options):
    return AsyncClient(broker.items_endpoint(scheme), key, **options)


def authorization(method, kind, link, date, key=ITEMS_KEY):
    text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
    return quote(f"type=master&ver=1.0&sig={signature}", safe="")


def ask(broker, verb, path, kind, link, body=None, headers=None, key=ITEMS_KEY, method=None):
    """A request without the SDK; gives status, headers and body. The verb is what is signed, and used unless another method is given."""
    date = formatdate(usegmt=True)
    request = urllib.request.Request(
        f"http://localhost:{broker.items_port}{path}",
        method=method or verb,
        data=None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode()),
        headers={
            "authorization": authorization(verb, kind, link, date, key),
            "x-ms-date": date,
            "x-ms-version": "2020-07-15",
            **(headers or {}),
        },
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def advance(broker, by):
    """Moves the items' time and says what it is then."""
    status, _, body = ask(broker, "POST", "/$otobus/clock", "$otobus", "$otobus/clock", {"advance": by})
    assert status == 200, body
    return json.loads(body)["now"]
