"""The log: a refused client is found by the tracking id, and no secret is ever in it."""

import json
import re
import socket
import tomllib
import urllib.error
import urllib.request

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import AccessRights, AuthorizationRule
from clock import token
from otobus import POLICY
from test_administration import administration

TRACKING = re.compile(r"TrackingId:([0-9a-f-]+_\w+)")

CONFIGURED = "configured-key-never-told"
WRONG = "wrong-key-never-told"
CHOSEN = "chosen-key-never-told"
GARBAGE = "garbage-token-never-told"
BODY = "body-never-told"
SECRETS = [CONFIGURED, WRONG, CHOSEN, GARBAGE, BODY]


@pytest.fixture
def talkative(unstarted_broker):
    """A broker that logs everything there is."""
    with open(unstarted_broker.config, "a") as config:
        config.write(f'[[policy]]\nname = "mine"\nkey = "{CONFIGURED}"\nrights = ["Send", "Listen", "Manage"]\n')
    unstarted_broker.start(flags=("--log", "trace", "--log-format", "json"))
    return unstarted_broker


def ask(broker, path, authorization=None, body=None, method=None):
    """The text of an answer, good or bad."""
    headers = {"Authorization": authorization} if authorization else {}
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.port}{path}", data=body, headers=headers, method=method
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.read().decode()


def as_root(broker):
    return broker.connection_string(root_key(broker))


def root_key(broker):
    return tomllib.loads((broker.data / "keys.toml").read_text())[POLICY]["primary"]


def events(broker):
    """What was logged: everything in the file that is not the announcement."""
    lines = [line for line in broker.log.read_text().splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def refused_over_amqp(broker, key, queue="orders"):
    string = broker.connection_string(key)
    with pytest.raises(ServiceBusError) as refused, ServiceBusClient.from_connection_string(
        string, retry_total=0
    ) as client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage(BODY))
    return str(refused.value)


def plain_login(broker, policy, key):
    """SASL PLAIN with a key; returns what the broker says before it hangs up."""
    response = f"\0{policy}\0{key}".encode()
    fields = b"\xa3\x05PLAIN" + b"\xa0" + bytes([len(response)]) + response
    init = b"\x00\x53\x41\xc0" + bytes([len(fields) + 1, 2]) + fields
    frame = (len(init) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + init
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as connection:
        connection.sendall(b"AMQP\x03\x01\x00\x00" + frame)
        told = b""
        while octets := connection.recv(4096):
            told += octets
        return told.decode("latin-1")


def test_the_tracking_id_of_each_refusal_is_in_the_log(talkative):
    http = [
        ask(talkative, "/orders"),
        ask(talkative, "/orders", token("http://localhost/", WRONG)),
        ask(talkative, "/nowhere", token("http://localhost/", CONFIGURED, "mine")),
    ]
    refused_over_amqp(talkative, WRONG)
    with administration(talkative, as_root(talkative)) as admin:
        admin.create_queue("closed", status="Disabled")
    closed = refused_over_amqp(talkative, root_key(talkative), "closed")
    talkative.stop()
    logged = {event["tracking"]: event for event in events(talkative) if event["message"] == "refused" and "tracking" in event}
    for told in http:
        event = logged[TRACKING.search(told)[1]]
        assert f"<Code>{event['status']}</Code>" in told
        assert event["level"] == "info"
    assert logged[TRACKING.search(closed)[1]]["entity"].endswith(":closed")
    # The client does not show its user what was said of its token.
    assert [event["why"] for event in logged.values() if event.get("entity", "").endswith("$cbs")] == [
        "InvalidSignature: The token has an invalid signature."
    ]


# A client is told that a signature is wrong; the operator can see what was wrong with it.
def test_the_true_reason_of_a_refused_token_is_in_the_log_at_debug(talkative):
    wrong = {
        "it fits no key of the policy `mine`": token("http://localhost/", WRONG, "mine"),
        "no policy here has the name that is given": token("http://localhost/", CONFIGURED, "nobody"),
        "s ago by this clock": token("http://localhost/", CONFIGURED, "mine", seconds=-3600),
        "one of `sr`, `sig`, `se` and `skn` is missing": "SharedAccessSignature sr=a",
        "it is neither a shared access signature nor a JSON web token": f"Bearer {GARBAGE}",
        "what is signed is not the address": token("orders", CONFIGURED, "mine"),
    }
    for header in wrong.values():
        assert "<Code>401</Code>" in ask(talkative, "/orders", header)
    refused_over_amqp(talkative, WRONG)
    plain_login(talkative, "mine", WRONG)
    talkative.stop()
    reasons = [event["why"] for event in events(talkative) if event["message"] == "a token is refused"]
    for why in wrong:
        assert any(why in reason for reason in reasons), why
    # Over HTTP, and by SASL PLAIN.
    assert reasons.count("it fits no key of the policy `mine`") >= 2
    assert f"it fits no key of the policy `{POLICY}`" in reasons
    # The rules of an entity are asked too, and what they say is true as well.
    assert reasons.count("no policy here has the name that is given") == 1
    assert "no rule of an entity here has the name that is given" in reasons


def test_no_secret_is_logged_told_or_counted(talkative):
    root, mine = root_key(talkative), token("http://localhost/", CONFIGURED, "mine")
    tokens = [
        token("http://localhost/", WRONG),
        token("http://localhost/other", CONFIGURED, "mine"),
        token("http://localhost/", CONFIGURED, "mine", seconds=-3600),
        f"SharedAccessSignature {GARBAGE}",
        f"Bearer {GARBAGE}",
        f"SharedAccessSignature sr=a&sig={GARBAGE}&se=soon&skn={GARBAGE}",
    ]
    told = [ask(talkative, "/orders", wrong) for wrong in tokens]
    told += [ask(talkative, f"/orders?sig={GARBAGE}", wrong) for wrong in (None, mine)]
    for body in (
        f"<PrimaryKey>{CHOSEN}</PrimaryKye>",
        f"<PrimaryKey>&{CHOSEN};</PrimaryKey>",
        f"<PrimaryKey>{CHOSEN}",
        CHOSEN,
    ):
        told.append(ask(talkative, "/new", mine, body.encode(), "PUT"))
    told.append(plain_login(talkative, POLICY, WRONG))
    told.append(plain_login(talkative, "mine", WRONG))
    told += [refused_over_amqp(talkative, WRONG), refused_over_amqp(talkative, root, "nowhere")]

    # Where it is right, a secret is used and not told either.
    rule = AuthorizationRule(
        key_name="chosen", primary_key=CHOSEN, rights=[AccessRights.SEND], type="SharedAccessAuthorizationRule"
    )
    no_rights = AuthorizationRule(key_name="n", primary_key=CHOSEN, rights=[], type="SharedAccessAuthorizationRule")
    with administration(talkative, as_root(talkative)) as admin:
        admin.create_queue("ruled", authorization_rules=[rule])
        with pytest.raises(HttpResponseError) as refused:
            admin.create_queue("unruled", authorization_rules=[no_rights])
        told.append(str(refused.value))
    with ServiceBusClient.from_connection_string(as_root(talkative)) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            receiver.dead_letter_message(message, reason="because")
    told += [ask(talkative, "/metrics"), ask(talkative, "/health")]
    talkative.stop()

    signatures = [re.search(r"sig=([^&]+)", wrong)[1] for wrong in [*tokens[:3], mine]]
    written = talkative.log.read_text()
    assert len(events(talkative)) >= len(tokens), "it did not say much"
    for secret in [*SECRETS, *signatures, *map(urllib.parse.unquote_plus, signatures), root, "SharedAccessKey=" + root]:
        assert secret not in written
        for text in told:
            assert secret not in text


def test_lines_are_text_unless_json_is_asked_for(unstarted_broker):
    unstarted_broker.start(flags=("--log", "info"))
    told = ask(unstarted_broker, "/or%0Ader%20s")
    unstarted_broker.stop()
    (line,) = [line for line in unstarted_broker.log.read_text().splitlines() if "tracking=" in line]
    assert f" tracking={TRACKING.search(told)[1]} " in line
    assert ' status=401 path="or\\nder s" ' in line


def test_debug_shows_who_comes_and_what_is_done_and_why_it_is_refused(unstarted_broker):
    unstarted_broker.start(flags=("--log", "debug", "--log-format", "json"))
    string = unstarted_broker.connection_string()
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            receiver.complete_message(message)
    with administration(unstarted_broker) as admin:
        admin.get_queue("orders")
        with pytest.raises(HttpResponseError) as refused:
            admin.create_queue("wrong", max_delivery_count=0)
    unstarted_broker.stop()
    told = events(unstarted_broker)
    seen = {event["message"] for event in told}
    assert {
        "connection accepted", "connection opened", "connection ended", "login", "claim accepted",
        "attach", "attached", "detach", "disposition", "settled", "answered", "refused",
    } <= seen
    links = {(event["role"], event["entity"].rsplit("/", 1)[-1]) for event in told if event["message"] == "attach"}
    assert {("sender", "orders"), ("receiver", "orders"), ("sender", "$cbs")} <= links
    # A 400 is told in the log in the words in which the client was told.
    why = "The value for 'MaxDeliveryCount' must be between 1 and 2147483647."
    assert why in str(refused.value)
    tracking = TRACKING.search(str(refused.value))[1]
    assert [event["why"] for event in told if event.get("tracking") == tracking and event["level"] == "debug"] == [why]
    assert not any(event["message"].startswith("frame") for event in told)
    assert BODY not in unstarted_broker.log.read_text()


def test_trace_shows_every_frame_by_its_name(talkative):
    with ServiceBusClient.from_connection_string(as_root(talkative)) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(BODY))
    talkative.stop()
    told = events(talkative)
    read = {event["frame"] for event in told if event["message"] == "frame read"}
    written = {event["frame"] for event in told if event["message"] == "frame written"}
    assert {"protocol header", "sasl-init", "open", "begin", "attach", "flow", "transfer", "close"} <= read
    assert {"protocol header", "sasl-mechanisms", "sasl-outcome", "open", "begin", "attach", "disposition"} <= written
    assert "unknown" not in read | written
