"""kombu's URLs can name neither the emulator's switch nor, for AMQP, a port: importing this tells the SDK underneath to look
where the test's broker listens. Everything else is kombu as it is installed."""

from kombu.transport import azureservicebus
from otobus import EMULATOR_KEY, POLICY

_parse = azureservicebus.Channel._try_parse_connection_string


def _parse_for_emulator(channel):
    _parse(channel)
    channel._connection_string += ";UseDevelopmentEmulator=true"


azureservicebus.Channel._try_parse_connection_string = _parse_for_emulator


def url(broker):
    # kombu wants a name that ends in `.net`; the SDK takes the host and the port before the slash.
    return f"azureservicebus://{POLICY}:{EMULATOR_KEY}@127.0.0.1:{broker.port}/.net"
