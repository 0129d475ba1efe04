"""A transaction is done whole or not at all (S-211), whenever the broker is killed: between any two of its frames, and before
the answer to any of them. Two queues take part, and a message that was locked before (S-212).
"""

import itertools

import pytest
from otobus import EMULATOR_KEY, POLICY, Otobus
from transaction_peer import ACCEPTED, OTHER, REJECTED, TRANSACTIONAL, TransactionPeer, fields
from transaction_scripts import EITHER, EVERYTHING, NOTHING, DotNet, Java
from wire import message

OLD, FIRST, SECOND = "mark-old", "mark-first", "mark-second"
MARKS = (OLD, FIRST, SECOND)
NOTHING_DONE = ([OLD], [])
ALL_DONE = ([FIRST], [SECOND])


@pytest.fixture
def two_queues(tmp_path):
    broker = Otobus(tmp_path, queues=("orders", "bills"))
    yield broker.start()
    broker.kill()
    print(broker.log.read_text())


def connect(broker):
    return TransactionPeer(broker.port, "orders", "bills", POLICY, EMULATOR_KEY)


def steps(peer, delivery, fail=False):
    """Each frame of a transaction as a pair: what writes it and what reads and checks its answer."""

    def staged():
        code, (transaction, outcome) = peer.answer()
        assert (code, transaction, outcome[2]) == (TRANSACTIONAL, peer.transaction, ACCEPTED)

    def ended():
        code, _ = peer.answer()
        assert code == ACCEPTED, hex(code)

    return [
        (peer.declare, peer.declared),
        (lambda: peer.send_within(0, message(FIRST, b"x" * 1024)), staged),
        (lambda: peer.send_within(OTHER, message(SECOND, b"x" * 1024)), staged),
        (lambda: peer.complete_within(delivery), staged),
        (lambda: peer.discharge(fail), ended),
    ]


def found(broker):
    """What is in the two queues, which are empty afterwards."""
    peer = connect(broker)
    taken = (peer.take_all(5, "orders", MARKS), peer.take_all(6, "bills", MARKS))
    peer.close()
    return taken


def begin(broker):
    peer = connect(broker)
    peer.send(message(OLD, b"x"))
    return peer, peer.lock_one("orders")


def test_a_transaction_that_is_committed_is_there_and_one_that_is_rolled_back_is_not(two_queues):
    # S-210, S-211, S-212, S-215
    for fail, expected in ((False, ALL_DONE), (True, NOTHING_DONE)):
        peer, delivery = begin(two_queues)
        for write, check in steps(peer, delivery, fail):
            write()
            check()
        peer.close()
        two_queues.restart()
        assert found(two_queues) == expected


def test_a_kill_between_any_two_frames_leaves_nothing_and_after_the_last_answer_everything(two_queues):
    # S-211
    for count in range(6):
        peer, delivery = begin(two_queues)
        for write, check in steps(peer, delivery)[:count]:
            write()
            check()
        two_queues.restart()
        assert found(two_queues) == (ALL_DONE if count == 5 else NOTHING_DONE), f"killed after {count} frames"
        peer.close()


def test_a_kill_before_the_answer_to_a_frame_leaves_all_or_nothing(two_queues):
    # S-211, S-10
    for count in range(1, 6):
        peer, delivery = begin(two_queues)
        *before, (write, _) = steps(peer, delivery)[:count]
        for each, check in before:
            each()
            check()
        write()
        two_queues.restart()
        left = found(two_queues)
        assert left == NOTHING_DONE or (count == 5 and left == ALL_DONE), f"killed after {count} frames: {left}"
        peer.close()


def test_losing_the_connection_rolls_back(two_queues):
    # S-213
    peer, delivery = begin(two_queues)
    for write, check in steps(peer, delivery)[:4]:
        write()
        check()
    peer.close()
    assert found(two_queues) == ([], []), "what was locked is locked still (S-215)"
    two_queues.restart()
    assert found(two_queues) == NOTHING_DONE


def test_an_unknown_transaction_is_refused_by_its_name(two_queues):
    peer = connect(two_queues)
    peer.transaction = b"never declared"
    peer.send_within(0, message(FIRST, b"x"))
    for act in (None, peer.discharge):
        if act:
            act()
        code, (error, *_) = peer.answer()
        assert code == REJECTED
        assert fields(error)[0] == b"amqp:transaction:unknown-id"
    peer.close()


@pytest.mark.parametrize("script", [DotNet, Java])
def test_a_kill_between_any_two_frames_of_a_client_leaves_all_or_nothing(two_queues, script):
    # S-211, A-8.1, A-8.3, A-8.4, A-8.5
    kept, stop = {NOTHING: [NOTHING_DONE], EVERYTHING: [ALL_DONE], EITHER: [NOTHING_DONE, ALL_DONE]}, 0
    while True:
        preparing = connect(two_queues)
        preparing.send(message(OLD, b"x"))
        preparing.close()
        client = script(two_queues.port, POLICY, EMULATOR_KEY)
        steps = client.steps("orders", "bills", [message(FIRST, b"x" * 1024), message(SECOND, b"x" * 1024)])
        said = list(itertools.islice(steps, stop + 1))
        if len(said) <= stop:
            break
        two_queues.restart()
        client.close()
        what, expected = said[-1]
        left = found(two_queues)
        assert left in kept[expected], f"killed after {what}: {left}"
        stop += 1
    # Every frame was the last one once, up to the answer that everything is done.
    assert said[-1][1] == EVERYTHING
    assert stop == len(said) > 40, f"{stop} kills"
