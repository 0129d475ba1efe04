"""Bearer tokens: of issuers that the configuration names, and of the development issuer through the official identity library."""

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.identity import DefaultAzureCredential
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusAuthorizationError, ServiceBusConnectionError
from azure.servicebus.management import ServiceBusAdministrationClient
from client import WAIT_SECONDS
from cryptography.hazmat.primitives.asymmetric import rsa

# With an endpoint of one's own, a token that is refused is a connection that fails to this SDK.
REFUSED = (ServiceBusAuthorizationError, ServiceBusConnectionError)
ISSUER = "https://login.example/tenant/v2.0"
ROLES = """
[[issuer.role]]
name = "Orders.Send"
rights = ["Send"]
entity = "orders"

[[issuer.role]]
name = "Bus.Manage"
rights = ["Manage"]
"""


class Signer:
    """An issuer with an RSA key, as identity providers have them."""

    def __init__(self):
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def key_set(self):
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**public, "kid": "k1", "use": "sig"}]})

    def token(self, roles, seconds=600, **claims):
        claims = {"iss": ISSUER, "aud": "https://servicebus.azure.net", "exp": time.time() + seconds, "roles": roles} | claims
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "k1"})


class Credential:
    """A credential as the SDK takes it, with one token."""

    def __init__(self, token):
        self.token = token

    def get_token(self, *_scopes, **_options):
        return AccessToken(self.token, int(time.time()) + 3600)


def declare(broker, keys):
    broker.config.write_text(
        f'[[queue]]\nname = "orders"\n\n[[queue]]\nname = "others"\n\n[[issuer]]\nname = "{ISSUER}"\nkeys = "{keys}"\n{ROLES}'
    )


@pytest.fixture
def signer():
    return Signer()


@pytest.fixture
def trusting(unstarted_broker, signer):
    """A broker that takes the signer's tokens."""
    keys = unstarted_broker.folder / "keys.json"
    keys.write_text(signer.key_set())
    declare(unstarted_broker, keys)
    return unstarted_broker.start()


def connected(broker, credential):
    return ServiceBusClient(
        "localhost",
        credential,
        transport_type=TransportType.Amqp,
        custom_endpoint_address=f"sb://localhost:{broker.port}",
        connection_verify=broker.ca,
        retry_total=0,
    )


def send(broker, token, queue="orders"):
    with connected(broker, Credential(token)) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("paid by roles"))


def administration(broker, credential):
    return ServiceBusAdministrationClient(
        f"localhost:{broker.port}", credential, connection_verify=broker.ca, retry_total=0
    )


def test_a_role_counts_for_what_it_was_configured(trusting, signer):
    sender = signer.token(["Orders.Send"])
    send(trusting, sender)
    with pytest.raises(REFUSED):
        send(trusting, sender, queue="others")
    with connected(trusting, Credential(sender)) as client:
        with pytest.raises(REFUSED):
            with client.get_queue_receiver("orders") as receiver:
                receiver.receive_messages(max_wait_time=WAIT_SECONDS)
    with administration(trusting, Credential(sender)) as admin:
        with pytest.raises(HttpResponseError, match="Manage"):
            admin.get_queue("orders")
    with administration(trusting, Credential(signer.token(["Bus.Manage"]))) as admin:
        assert admin.get_queue_runtime_properties("orders").active_message_count == 1
        admin.create_queue("new", forward_to="orders")


def test_a_role_on_an_entity_counts_for_its_messages_over_http(trusting, signer):
    def status(method, path, role="Orders.Send"):
        request = urllib.request.Request(f"http://localhost:{trusting.port}/{path}", method=method, data=b"paid by roles")
        request.add_header("Authorization", f"Bearer {signer.token([role])}")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    assert status("POST", "orders/messages") == 201
    assert status("POST", "others/messages") == 401
    assert status("DELETE", "orders/messages/head?timeout=1") == 401, "it may send"
    assert status("POST", "orders/messages/messages") == 401, "another entity"
    assert status("DELETE", "orders/messages/head?timeout=5", role="Bus.Manage") == 200


def test_what_another_signed_and_what_has_run_out_is_refused(trusting, signer):
    wrong = [
        Signer().token(["Bus.Manage"]),
        signer.token(["Bus.Manage"], seconds=-3600),
        signer.token(["Bus.Manage"], aud="https://storage.azure.com"),
        signer.token(["Bus.Manage"], iss="https://elsewhere.example"),
        signer.token(["Nothing"]),
    ]
    for token in wrong:
        with pytest.raises(REFUSED):
            send(trusting, token)
        with administration(trusting, Credential(token)) as admin, pytest.raises(HttpResponseError) as refused:
            admin.get_queue("orders")
        assert refused.value.status_code == 401


@contextmanager
def serving(signer, certificate=None):
    """The signer's keys at a URL, of `https` if there is a certificate with its key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = signer.key_set().encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"{'https' if certificate else 'http'}://localhost:{server.server_port}/discovery/keys"
    server.shutdown()
    thread.join()
    server.server_close()


def send_once_keys_are_there(broker, signer):
    deadline = time.monotonic() + 30
    while True:
        try:
            return send(broker, signer.token(["Orders.Send"]))
        except REFUSED:
            assert time.monotonic() < deadline, "the keys were not fetched"


def test_keys_are_fetched_from_a_url(unstarted_broker, signer):
    with serving(signer) as url:
        declare(unstarted_broker, url)
        unstarted_broker.start()
        send_once_keys_are_there(unstarted_broker, signer)


def test_keys_are_fetched_by_https_from_whom_the_system_trusts(unstarted_broker, signer, monkeypatch):
    # The first start makes a certificate for localhost, and who has signed it.
    unstarted_broker.start()
    unstarted_broker.stop()
    tls = unstarted_broker.data / "tls"
    with serving(signer, (tls / "server.pem", tls / "server.key")) as url:
        declare(unstarted_broker, url)
        unstarted_broker.start()
        deadline = time.monotonic() + 30
        while "UnknownIssuer" not in unstarted_broker.log.read_text():
            assert time.monotonic() < deadline, "the log does not say why there are no keys"
            time.sleep(0.05)
        with pytest.raises(REFUSED):
            send(unstarted_broker, signer.token(["Orders.Send"]))
        unstarted_broker.stop()
        monkeypatch.setenv("SSL_CERT_FILE", str(tls / "ca.pem"))
        unstarted_broker.start()
        send_once_keys_are_there(unstarted_broker, signer)


def test_a_role_for_an_entity_counts_on_its_parts_and_not_on_entities_below(trusting, signer):
    boss = Credential(signer.token(["Bus.Manage"]))
    with administration(trusting, boss) as admin:
        admin.create_queue("orders/late")
    with pytest.raises(REFUSED):
        send(trusting, signer.token(["Orders.Send"]), queue="orders/late")
    # A claim for the entity does not open the one below either, on the same connection.
    with connected(trusting, Credential(signer.token(["Orders.Send"]))) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("to the entity"))
        with pytest.raises(REFUSED), client.get_queue_sender("orders/late") as sender:
            sender.send_messages(ServiceBusMessage("below it"))


def test_the_log_has_the_true_reason_of_each_refusal(unstarted_broker, signer):
    keys = unstarted_broker.folder / "keys.json"
    keys.write_text(signer.key_set())
    declare(unstarted_broker, keys)
    unstarted_broker.start(flags=("--log", "debug"))
    wrong = {
        "has signed it by the algorithm": Signer().token(["Bus.Manage"]),
        "s ago by this clock": signer.token(["Bus.Manage"], seconds=-3600),
        "`aud` is none of": signer.token(["Bus.Manage"], aud="https://storage.azure.com"),
        "no issuer here has the name": signer.token(["Bus.Manage"], iss="https://elsewhere.example"),
        "no role of the issuer": signer.token(["Nothing"]),
        "the time in `nbf` is to come": signer.token(["Bus.Manage"], nbf=time.time() + 3600),
        "`exp` is no time": signer.token(["Bus.Manage"], exp=None),
    }
    for why, token in wrong.items():
        before = len(unstarted_broker.log.read_text())
        with administration(unstarted_broker, Credential(token)) as admin, pytest.raises(HttpResponseError):
            admin.get_queue("orders")
        assert why in unstarted_broker.log.read_text()[before:]


def test_the_default_credential_gets_a_token_of_the_development_issuer(unstarted_broker, monkeypatch):
    unstarted_broker.start(flags=("--development-issuer",))
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://127.0.0.1:{unstarted_broker.port}/$otobus/token")
    monkeypatch.setenv("IDENTITY_HEADER", "anything")
    credential = DefaultAzureCredential()
    with connected(unstarted_broker, credential) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("by identity"))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=10)
            receiver.complete_message(message)
    with administration(unstarted_broker, credential) as admin:
        admin.create_queue("made")


def test_without_being_asked_for_there_is_no_development_issuer(broker):
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(f"http://127.0.0.1:{broker.port}/$otobus/token?resource=x")
    assert missing.value.code == 404


def test_a_development_issuer_that_others_can_reach_is_refused(unstarted_broker):
    flags = ("--development-issuer", "--listen-bus", "0.0.0.0:0")
    with pytest.raises(AssertionError, match="loopback"):
        unstarted_broker.start(flags=flags)
