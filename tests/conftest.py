"""Fixtures shared by the black-box tests written in Python."""

import pytest
from otobus import Otobus


@pytest.fixture
def broker(tmp_path):
    """A running broker with the queue `orders`, ended with the test."""
    otobus = Otobus(tmp_path)
    otobus.start()
    yield otobus
    otobus.kill()


@pytest.fixture
def unstarted_broker(tmp_path):
    """A broker with the queue `orders` that the test starts itself."""
    otobus = Otobus(tmp_path)
    yield otobus
    otobus.kill()
