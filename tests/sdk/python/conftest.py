"""Fixtures of the tests with the official SDK."""

import pytest
from client import Client


@pytest.fixture
def client(broker):
    return Client(broker)
