"""How the tests reach the broker through the official SDK."""

from azure.servicebus import ServiceBusClient

# Long enough for a message that is there, paid in full only where a test proves that none is.
WAIT_SECONDS = 2


class Client:
    """Opens a fresh SDK client for each step, so that nothing but the broker remembers anything."""

    def __init__(self, broker):
        self.broker = broker

    def connect(self):
        return ServiceBusClient.from_connection_string(self.broker.connection_string(), retry_total=0)

    def send(self, *messages, queue="orders"):
        with self.connect() as client, client.get_queue_sender(queue) as sender:
            for message in messages:
                sender.send_messages(message)

    def receive_nothing(self, queue="orders"):
        """True if the queue hands out no message."""
        with self.connect() as client, client.get_queue_receiver(queue) as receiver:
            return receiver.receive_messages(max_wait_time=WAIT_SECONDS) == []
