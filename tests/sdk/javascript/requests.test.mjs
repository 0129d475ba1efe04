// What clients ask of a queue beside sending and receiving: peek, schedule, cancel, renew, defer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { connected, receive, send } from "./client.mjs";
import { Otobus } from "./otobus.mjs";

const inAnHour = () => new Date(Date.now() + 3_600_000);
const numbers = (messages) => messages.map((message) => message.sequenceNumber.toString());
const hasCode = (code) => (error) => error.code === code;

// S-8, S-130, S-131, S-132, S-133
test("peek shows messages of every state in order and changes nothing", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: "0" }, { body: "1" }, { body: "2" });
  await connected(broker, async (client) => {
    await client.createSender("orders").scheduleMessages({ body: "later" }, inAnHour());
    const receiver = client.createReceiver("orders");
    const [first] = await receive(receiver, 1);
    await receiver.deferMessage(first);
    const [locked] = await receive(receiver, 1);
    const peeked = await receiver.peekMessages(10);
    assert.deepEqual(peeked.map((message) => message.body), ["0", "1", "2", "later"]);
    assert.deepEqual(peeked.map((message) => message.state), ["deferred", "active", "active", "scheduled"]);
    assert.deepEqual(numbers(peeked), ["1", "2", "3", "4"]);
    assert.equal(peeked[1].lockedUntilUtc, undefined);
    assert.deepEqual(numbers(await receiver.peekMessages(10)), [], "it goes on where it was");
    await receiver.completeMessage(locked);
  });
});

// S-40, S-42
test("a scheduled message has a number and is cancelled by it", async (t) => {
  const broker = await Otobus.forTest(t);
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    const scheduled = await sender.scheduleMessages([{ body: "one" }, { body: "two" }], inAnHour());
    assert.deepEqual(scheduled.map(String), ["1", "2"]);
    await sender.cancelScheduledMessages(scheduled[0]);
    await assert.rejects(sender.cancelScheduledMessages(scheduled[0]), hasCode("MessageNotFound"));
    assert.deepEqual(numbers(await client.createReceiver("orders").peekMessages(10)), ["2"]);
  });
});

// K-8
test("a message that has waited for its time says so, and one whose time was over does not", async (t) => {
  const broker = await Otobus.forTest(t);
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    await sender.sendMessages({ body: "over", scheduledEnqueueTimeUtc: new Date(Date.now() - 60_000) });
    await sender.scheduleMessages({ body: "ahead" }, new Date(Date.now() + 1_000));
    const received = await receive(client.createReceiver("orders"), 2);
    const states = received.map((message) => [message.body, message.state]);
    assert.deepEqual(states, [["over", "active"], ["ahead", "scheduled"]]);
  });
});

// S-83
test("a lock is renewed, and a lost one is not", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: "mine" });
  await connected(broker, async (client) => {
    const receiver = client.createReceiver("orders");
    const [message] = await receive(receiver, 1);
    const before = message.lockedUntilUtc;
    assert.ok((await receiver.renewMessageLock(message)) >= before);
    await receiver.completeMessage(message);
    const again = { ...message, delivery: { remote_settled: false } };
    await assert.rejects(receiver.renewMessageLock(again), hasCode("MessageLockLost"));
  });
});

// S-120, S-121, S-123, S-126
test("deferred messages are received by number and settled", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: "0" }, { body: "1" }, { body: "2" });
  await connected(broker, async (client) => {
    const receiver = client.createReceiver("orders");
    const messages = await receive(receiver, 3);
    for (const message of messages) await receiver.deferMessage(message);
    const asked = messages.map((message) => message.sequenceNumber);
    const deferred = await receiver.receiveDeferredMessages(asked);
    assert.deepEqual(deferred.map((message) => [message.body, message.deliveryCount]), [["0", 1], ["1", 1], ["2", 1]]);
    await receiver.completeMessage(deferred[0]);
    await receiver.abandonMessage(deferred[1], { tries: 1 });
    await receiver.deadLetterMessage(deferred[2], { deadLetterReason: "why" });
    await assert.rejects(receiver.receiveDeferredMessages(asked[0]), hasCode("MessageNotFound"));
    const [again] = await receiver.receiveDeferredMessages(asked[1]);
    assert.deepEqual([again.deliveryCount, again.applicationProperties.tries], [2, 1]);
    const dead = client.createReceiver("orders", { subQueueType: "deadLetter" });
    const [letter] = await dead.peekMessages(5);
    assert.deepEqual([letter.body, letter.deadLetterReason], ["2", "why"]);
  });
});
