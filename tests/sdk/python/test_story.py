"""A story: a web site sends jobs with a deadline, and its backend stalls."""

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from client import Client
from clock import Clock
from test_administration import administration

DEADLINE = timedelta(minutes=5)


@pytest.fixture
def site(unstarted_broker):
    """The broker with a test clock, and the two queues that the site lives by."""
    unstarted_broker.start(flags=("--test-clock",))
    with administration(unstarted_broker) as admin:
        admin.create_queue("jobs", dead_lettering_on_message_expiration=True, lock_duration=timedelta(minutes=1))
        admin.create_queue("replies")
    return unstarted_broker


def job(number):
    return ServiceBusMessage(
        f"resize picture {number}", message_id=f"job-{number}", reply_to="replies", time_to_live=DEADLINE
    )


def work(connection, outcome, sub_queue=None):
    """Takes what waits in `jobs`, answers each to where it wants its reply, and returns what it was."""
    done = []
    with connection.get_queue_receiver("jobs", sub_queue=sub_queue) as receiver:
        for message in receiver.receive_messages(max_message_count=10, max_wait_time=2):
            reply = ServiceBusMessage(outcome, correlation_id=message.message_id)
            with connection.get_queue_sender(message.reply_to) as sender:
                sender.send_messages(reply)
            receiver.complete_message(message)
            done.append(message)
    return done


def test_jobs_that_wait_too_long_are_found_in_the_dead_letter_queue_and_answered(site):
    client, clock = Client(site), Clock(site)
    client.send(job(1), queue="jobs")
    with client.connect() as backend:
        assert [message.message_id for message in work(backend, "done")] == ["job-1"]

    # The backend takes a job and stalls; two more wait behind it.
    client.send(job(2), job(3), job(4), queue="jobs")
    with client.connect() as stalled, stalled.get_queue_receiver("jobs") as receiver:
        (taken,) = receiver.receive_messages(max_message_count=1, max_wait_time=5)
        assert taken.message_id == "job-2"
        happened = clock.advance("PT10M")
    assert [(event["event"], event["outcome"], event["sequenceNumber"]) for event in happened["events"]] == [
        ("lockExpired", "returned", 2),
        ("messageExpired", "deadLettered", 2),
        ("messageExpired", "deadLettered", 3),
        ("messageExpired", "deadLettered", 4),
    ]

    # A job that comes now has its whole deadline before it.
    client.send(job(5), queue="jobs")
    clock.advance("PT4M")
    with client.connect() as backend:
        assert [message.message_id for message in work(backend, "done")] == ["job-5"]
        expired = work(backend, "expired", ServiceBusSubQueue.DEAD_LETTER)
    assert sorted(message.message_id for message in expired) == ["job-2", "job-3", "job-4"]
    for message in expired:
        assert message.dead_letter_reason == "TTLExpiredException"
        assert message.dead_letter_error_description == "The message expired and was dead lettered."
        assert message.time_to_live == DEADLINE

    with client.connect() as web, web.get_queue_receiver("replies") as receiver:
        replies = {}
        while answers := receiver.receive_messages(max_message_count=10, max_wait_time=2):
            for reply in answers:
                replies[reply.correlation_id] = str(reply)
                receiver.complete_message(reply)
    assert replies == {"job-1": "done", "job-2": "expired", "job-3": "expired", "job-4": "expired", "job-5": "done"}
    with administration(site) as admin:
        assert admin.get_queue_runtime_properties("jobs").total_message_count == 0
