"""Fixtures shared by the black-box tests written in Python."""

import pytest
from otobus import Otobus


@pytest.fixture
def broker(tmp_path):
    """A running broker with the queue `orders`, ended with the test."""
    otobus = Otobus(tmp_path)
    otobus.start()
    yield otobus
    end(otobus)


@pytest.fixture
def unstarted_broker(tmp_path):
    """A broker with the queue `orders` that the test starts itself."""
    otobus = Otobus(tmp_path)
    yield otobus
    end(otobus)


@pytest.fixture
def items_broker(tmp_path):
    """A running broker with items and the test clock."""
    otobus = Otobus(tmp_path, has_items=True)
    otobus.start(flags=["--test-clock"])
    yield otobus
    end(otobus)


def end(otobus):
    """Ends the broker; pytest shows what it logged if the test failed."""
    otobus.kill()
    print(otobus.log.read_text())
