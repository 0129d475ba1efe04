"""Connection strings of every form, and what users of the emulator have around them."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from clock import token
from otobus import EMULATOR_KEY, POLICY

# What the emulator's own container is given.
EMULATOR_VARIABLES = {
    "ACCEPT_EULA": "Y",
    "SQL_SERVER": "sqledge",
    "MSSQL_SA_PASSWORD": "Strong.Password1",
    "SQL_WAIT_INTERVAL": "15",
    "EMULATOR_HTTP_PORT": "5300",
}


def strings(broker):
    """Each form with the name of what is special about it (H-105)."""
    endpoint = f"Endpoint=sb://127.0.0.1:{broker.port}"
    key = f"SharedAccessKeyName={POLICY};SharedAccessKey={EMULATOR_KEY}"
    signature = token(f"sb://127.0.0.1:{broker.port}/")
    switch = "UseDevelopmentEmulator=true"
    return {
        "key": f"{endpoint};{key};{switch}",
        "ending": f"{endpoint}/;{key};{switch};",
        "signature": f"{endpoint};SharedAccessSignature={signature};{switch}",
        "entity": f"{endpoint};{key};EntityPath=orders;{switch}",
        "order": f"{switch};EntityPath=orders;{key};{endpoint}",
        "scheme": f"{endpoint.replace('sb://', 'amqp://')};{key};{switch}",
    }


@pytest.mark.parametrize("form", strings(type("Nobody", (), {"port": 0})()))
def test_a_message_passes_with_a_connection_string_of_each_form(broker, form):
    string = strings(broker)[form]
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage(form))
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=5)
            assert str(message) == form
            receiver.complete_message(message)


def test_the_variables_of_the_emulator_do_no_harm(unstarted_broker, monkeypatch):
    # H-123
    for name, value in EMULATOR_VARIABLES.items():
        monkeypatch.setenv(name, value)
    unstarted_broker.start()
    with ServiceBusClient.from_connection_string(unstarted_broker.connection_string()) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))


def test_an_administration_client_that_was_turned_to_plain_http_works(broker):
    # H-126: what users of the emulator write, because this client knows only HTTPS.
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), retry_total=0) as admin:
        admin._impl._client._base_url = f"http://127.0.0.1:{broker.port}"
        admin.create_queue("plain")
        assert admin.get_queue("plain").name == "plain"
        assert sorted(queue.name for queue in admin.list_queues()) == ["orders", "plain"]
