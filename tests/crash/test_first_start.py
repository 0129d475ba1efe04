"""A first start that is killed at any of its syncs is made good by the next: what it makes is there, and made once."""

import os
import shutil

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient
from otobus import Otobus

STRACE = os.environ.get("OTOBUS_STRACE") or shutil.which("strace")
# Far above what one thread of a first start does.
MOST_SYNCS = 100


def first_start(folder):
    """A broker whose owner has not said what there shall be."""
    folder.mkdir()
    broker = Otobus(folder)
    broker.config.unlink()
    broker.config = None
    return broker


def killed_at(call, nth):
    """Kills the broker when one of its threads makes this call for the nth time."""
    inject = f"inject={call}:signal=SIGKILL:when={nth}"
    return [STRACE, "-D", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject, "--"]


def entities(broker):
    options = {"connection_verify": broker.ca, "retry_total": 0}
    with ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options) as admin:
        queues = [queue.name for queue in admin.list_queues()]
        topics = [topic.name for topic in admin.list_topics()]
        subscriptions = {
            subscription.name: [rule.name for rule in admin.list_rules(topic, subscription.name)]
            for topic in topics
            for subscription in admin.list_subscriptions(topic)
        }
    return queues, topics, subscriptions


# Files and directories are synced by the one, what the journal appends by the other.
@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_a_first_start_that_is_killed_at_any_sync_is_made_good_by_the_next(tmp_path, call):
    assert STRACE, "this test kills the broker at its syncs with strace: install the package `strace`"
    whole = first_start(tmp_path / "whole").start()
    expected = entities(whole)
    whole.kill()
    assert (expected[0], expected[1], len(expected[2])) == (["queue.1"], ["topic.1"], 4)
    killed = 0
    for nth in range(1, MOST_SYNCS):
        broker = first_start(tmp_path / str(nth))
        try:
            try:
                broker.start(under=killed_at(call, nth))
            except AssertionError as ended:
                assert "status -9" in str(ended)
                killed += 1
            else:
                break
            broker.start()
            assert entities(broker) == expected, f"killed at sync {nth}"
            assert not (broker.data / "first-start").exists()
        finally:
            broker.kill()
        shutil.rmtree(broker.folder)
    else:
        pytest.fail("it never had enough syncs")
    assert killed > 2
