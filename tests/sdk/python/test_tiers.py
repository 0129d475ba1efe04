"""What each tier tells of itself and of its entities, and that everything that was read can be written back."""

from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter
from test_administration import administration

TIERS = ["basic", "standard", "premium", "unlimited"]


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


@pytest.fixture
def admin(unstarted_broker, tier):
    unstarted_broker.start(flags=["--tier", tier])
    with administration(unstarted_broker) as admin:
        yield admin


def test_a_namespace_tells_its_tier(admin, tier):
    # K-20
    told = admin.get_namespace_properties()
    assert told.messaging_sku == {"unlimited": "Premium"}.get(tier, tier.capitalize())
    assert told.messaging_units == (1 if tier in ("premium", "unlimited") else None)


def test_whatever_was_read_is_taken_as_an_update(admin, tier):
    # K-21, K-22
    more = {} if tier == "basic" else {
        "requires_session": True,
        "requires_duplicate_detection": True,
        "forward_to": "target",
        "auto_delete_on_idle": timedelta(minutes=10),
        "default_message_time_to_live": timedelta(days=2),
    }
    admin.create_queue("target", enable_partitioning=True)
    admin.create_queue("rich", lock_duration=timedelta(seconds=7), user_metadata="words", **more)
    admin.create_topic("news", enable_partitioning=True)
    admin.create_subscription("news", "all", forward_dead_lettered_messages_to="target")
    admin.create_rule("news", "all", "sql", filter=SqlRuleFilter("a = @p", {"p": 1}), action=SqlRuleAction("SET b = 2"))
    admin.create_rule("news", "all", "same", filter=CorrelationRuleFilter(label="l", properties={"a": True, "b": 1.5}))
    for _ in range(2):
        for name in ("target", "rich"):
            queue = admin.get_queue(name)
            admin.update_queue(queue)
            assert dict(admin.get_queue(name)) == dict(queue)
        topic = admin.get_topic("news")
        admin.update_topic(topic)
        assert dict(admin.get_topic("news")) == dict(topic)
        subscription = admin.get_subscription("news", "all")
        admin.update_subscription("news", subscription)
        assert dict(admin.get_subscription("news", "all")) == dict(subscription)
        for name in ("$Default", "sql", "same"):
            admin.update_rule("news", "all", admin.get_rule("news", "all", name))
    factor = 16 if tier in ("basic", "standard") else 1
    assert admin.get_queue("target").max_size_in_megabytes == 1024 * factor
    assert admin.get_topic("news").max_size_in_megabytes == 1024 * factor


def test_only_where_it_can_be_chosen_the_size_of_messages_is_set(admin, tier):
    # K-21, K-26
    admin.create_queue("q")
    queue = admin.get_queue("q")
    assert queue.max_message_size_in_kilobytes == (256 if tier in ("basic", "standard") else 1024)
    queue.max_message_size_in_kilobytes = 2048
    if tier in ("basic", "standard"):
        with pytest.raises(HttpResponseError):
            admin.update_queue(queue)
        with pytest.raises(HttpResponseError):
            admin.create_queue("r", max_message_size_in_kilobytes=256)
    else:
        admin.update_queue(queue)
        with pytest.raises(HttpResponseError) as refused:
            admin.create_queue("r", max_message_size_in_kilobytes=102401)
        text = "The value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400"
        assert refused.value.status_code == 400 and text in str(refused.value)


def test_a_queue_may_forward_to_itself_by_an_update(broker, client):
    # K-23, K-24, K-25
    from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

    with administration(broker) as admin:
        queue = admin.get_queue("orders")
        queue.forward_to = f"SB://127.0.0.1:{broker.port}/orders"
        queue.auto_delete_on_idle = timedelta(minutes=5)
        admin.update_queue(queue)
        read = admin.get_queue("orders")
        assert read.forward_to == f"sb://127.0.0.1:{broker.port}/orders"
        assert read.auto_delete_on_idle == timedelta(minutes=5)
    client.send(ServiceBusMessage("round"))
    with client.connect() as connection:
        with connection.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (letter,) = receiver.receive_messages(max_wait_time=10)
            assert letter.dead_letter_reason == "MaxTransferHopCountExceeded"
