"""Many of something at once: receivers, sessions, rules."""

import asyncio
import concurrent.futures

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import OperationTimeoutError
from azure.servicebus.management import CorrelationRuleFilter, ServiceBusAdministrationClient
from client import WAIT_SECONDS

RECEIVERS, SESSIONS, MESSAGES = 50, 500, 4

SUBSCRIPTIONS, RULES = 10, 1_000


def administration(broker):
    options = {"connection_verify": broker.ca, "retry_total": 0}
    return ServiceBusAdministrationClient.from_connection_string(broker.connection_string(), **options)


def send_all(sender, messages):
    batch = sender.create_message_batch()
    for message in messages:
        try:
            batch.add_message(message)
        except ValueError:
            sender.send_messages(batch)
            batch = sender.create_message_batch()
            batch.add_message(message)
    sender.send_messages(batch)


async def work_off(client, seen):
    """Takes one session after the other until everything was seen by somebody."""
    while sum(map(len, seen.values())) < SESSIONS * MESSAGES:
        receiver = client.get_queue_receiver("many", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_SECONDS)
        try:
            async with receiver:
                session, taken = receiver.session.session_id, []
                while len(taken) < MESSAGES:
                    messages = await receiver.receive_messages(MESSAGES - len(taken), max_wait_time=WAIT_SECONDS)
                    assert messages, f"{session} gave only {taken}"
                    for message in messages:
                        assert message.session_id == session
                        taken.append(int(str(message)))
                        await receiver.complete_message(message)
                assert session not in seen, f"{session} was given twice"
                seen[session] = taken
        except OperationTimeoutError:
            pass


async def all_receivers(broker):
    seen = {}
    async with AsyncClient.from_connection_string(broker.connection_string(), retry_total=0) as client:
        await asyncio.gather(*[work_off(client, seen) for _ in range(RECEIVERS)])
    return seen


# S-142, S-144, S-145
def test_fifty_receivers_work_off_five_hundred_sessions_each_in_order(broker):
    with administration(broker) as admin:
        admin.create_queue("many", requires_session=True)
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_queue_sender("many") as sender:
            # Of each session one after the other, so that all of them grow side by side.
            numbers = [(n, f"s{m}") for n in range(MESSAGES) for m in range(SESSIONS)]
            send_all(sender, [ServiceBusMessage(str(n), session_id=session) for n, session in numbers])
    seen = asyncio.run(all_receivers(broker))
    assert seen == {f"s{m}": list(range(MESSAGES)) for m in range(SESSIONS)}
    with administration(broker) as admin:
        assert admin.get_queue_runtime_properties("many").total_message_count == 0


# S-182, S-190
def test_a_topic_with_a_thousand_rules_gives_each_message_to_whom_it_is_for(broker):
    names = [f"s{n}" for n in range(SUBSCRIPTIONS)]

    def subscribe(nth):
        with administration(broker) as admin:
            admin.create_subscription("many", names[nth])
            admin.delete_rule("many", names[nth], "$Default")
            for n in range(nth, RULES, SUBSCRIPTIONS):
                rule = CorrelationRuleFilter(correlation_id=f"c{n}")
                admin.create_rule("many", names[nth], f"r{n}", filter=rule)

    with administration(broker) as admin:
        admin.create_topic("many")
        with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
            list(pool.map(subscribe, range(SUBSCRIPTIONS)))
        assert len(list(admin.list_rules("many", names[0]))) == RULES // SUBSCRIPTIONS
    broker.restart()
    with ServiceBusClient.from_connection_string(broker.connection_string()) as client:
        with client.get_topic_sender("many") as sender:
            send_all(sender, [ServiceBusMessage(str(n), correlation_id=f"c{n}") for n in range(RULES + 1)])
        for nth, name in enumerate(names):
            options = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE, "max_wait_time": WAIT_SECONDS}
            with client.get_subscription_receiver("many", name, **options) as receiver:
                taken = []
                while len(taken) < RULES // SUBSCRIPTIONS:
                    messages = receiver.receive_messages(RULES, max_wait_time=WAIT_SECONDS)
                    assert messages, f"{name} gave only {taken}"
                    taken.extend(int(str(message)) for message in messages)
            assert taken == list(range(nth, RULES, SUBSCRIPTIONS))
    with administration(broker) as admin:
        left = [each.total_message_count for each in admin.list_subscriptions_runtime_properties("many")]
        assert left == [0] * SUBSCRIPTIONS
