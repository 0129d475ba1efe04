// Message sessions through the official SDK: accepting, order, locks, state, and what survives a crash.

import { ServiceBusAdministrationClient } from "@azure/service-bus";
import assert from "node:assert/strict";
import { test } from "node:test";
import { connected, receive } from "./client.mjs";
import { Otobus, WAIT_MS } from "./otobus.mjs";

const QUEUE = "sessions";

async function withSessions(t) {
  const broker = await Otobus.forTest(t);
  const options = { tlsOptions: { ca: await broker.ca() }, retryOptions: { maxRetries: 0 } };
  const admin = new ServiceBusAdministrationClient(broker.connectionString(), options);
  await admin.createQueue(QUEUE, { requiresSession: true });
  return broker;
}

async function sendTo(broker, ...sent) {
  await connected(broker, async (client) => {
    const messages = sent.map(([sessionId, body]) => ({ sessionId, body }));
    await client.createSender(QUEUE).sendMessages(messages);
  });
}

async function take(receiver, count) {
  const messages = await receive(receiver, count);
  for (const message of messages) await receiver.completeMessage(message);
  return messages.map((message) => message.body);
}

// S-142, S-145, S-152
test("each session gives its own messages in order, also after a crash", async (t) => {
  const broker = await withSessions(t);
  await sendTo(broker, ...Array.from({ length: 12 }, (_, n) => [`s${n % 2}`, n]));
  await broker.restart();
  await connected(broker, async (client) => {
    for (const session of [0, 1]) {
      const receiver = await client.acceptSession(QUEUE, `s${session}`);
      assert.equal(receiver.sessionId, `s${session}`);
      assert.deepEqual(await take(receiver, 6), [0, 2, 4, 6, 8, 10].map((n) => n + session));
      await receiver.close();
    }
  });
});

// S-142, S-143, S-144, S-147, S-148
test("a session has one receiver at a time and is free when it closes", async (t) => {
  const broker = await withSessions(t);
  await sendTo(broker, ["a", 1]);
  await connected(broker, async (client) => {
    const receiver = await client.acceptNextSession(QUEUE);
    assert.equal(receiver.sessionId, "a");
    const lockedFor = receiver.sessionLockedUntilUtc - Date.now();
    assert.ok(30_000 < lockedFor && lockedFor < 90_000, `locked for ${lockedFor} ms`);
    await receive(receiver, 1);
    await connected(broker, async (other) => {
      await assert.rejects(other.acceptSession(QUEUE, "a"), (error) => error.code === "SessionCannotBeLocked");
    });
    await receiver.close();
    const again = await client.acceptSession(QUEUE, "a");
    const [message] = await receive(again, 1);
    assert.equal(message.deliveryCount, 0);
  });
});

// S-144, A-6.2.3: a detach that came after its attach would be reported as a session that cannot be locked.
test("whoever finds no session is told so in time", async (t) => {
  const broker = await withSessions(t);
  await connected(broker, async (client) => {
    await assert.rejects(client.acceptNextSession(QUEUE, { maxAutoLockRenewalDurationInMs: 0 }), (error) => {
      assert.equal(error.code, "ServiceTimeout");
      return true;
    });
  });
});

// S-86, S-125, S-134, S-145
test("messages of a session are abandoned, deferred, peeked and dead-lettered", async (t) => {
  const broker = await withSessions(t);
  await sendTo(broker, ["a", 0], ["b", 9], ["a", 1], ["a", 2]);
  await connected(broker, async (client) => {
    const receiver = await client.acceptSession(QUEUE, "a");
    const [first] = await receive(receiver, 1);
    await receiver.abandonMessage(first);
    const [again] = await receive(receiver, 1);
    assert.deepEqual([again.body, again.deliveryCount], [0, 1]);
    await receiver.deferMessage(again);
    const [second] = await receive(receiver, 1);
    await receiver.deadLetterMessage(second, { deadLetterReason: "why" });
    const peeked = await receiver.peekMessages(10);
    assert.deepEqual(peeked.map((message) => message.body), [0, 2]);
    const [deferred] = await receiver.receiveDeferredMessages(again.sequenceNumber);
    assert.deepEqual([deferred.body, deferred.deliveryCount], [0, 2]);
    await receiver.completeMessage(deferred);
    assert.deepEqual(await take(receiver, 1), [2]);
    // S-103
    const letters = client.createReceiver(QUEUE, { subQueueType: "deadLetter" });
    const [letter] = await receive(letters, 1);
    assert.deepEqual([letter.body, letter.sessionId, letter.deadLetterReason], [1, "a", "why"]);
    await letters.completeMessage(letter);
  });
});

// S-149
test("the state of a session is kept until it is cleared", async (t) => {
  const broker = await withSessions(t);
  const state = async (use) =>
    connected(broker, async (client) => {
      const receiver = await client.acceptSession(QUEUE, "a");
      const result = await use(receiver);
      await receiver.close();
      return result;
    });
  assert.equal(await state((receiver) => receiver.getSessionState()), null);
  await state((receiver) => receiver.setSessionState({ step: 7 }));
  await broker.restart();
  assert.deepEqual(await state((receiver) => receiver.getSessionState()), { step: 7 });
  await state((receiver) => receiver.setSessionState(null));
  assert.equal(await state((receiver) => receiver.getSessionState()), null);
});

// S-142
test("the lock of a session is renewed", async (t) => {
  const broker = await withSessions(t);
  await connected(broker, async (client) => {
    const receiver = await client.acceptSession(QUEUE, "a", { maxAutoLockRenewalDurationInMs: 0 });
    const before = receiver.sessionLockedUntilUtc;
    assert.ok((await receiver.renewSessionLock()) >= before);
  });
});

// S-140
test("receivers and queues must agree on sessions", async (t) => {
  const broker = await withSessions(t);
  await connected(broker, async (client) => {
    const plain = client.createReceiver(QUEUE).receiveMessages(1, { maxWaitTimeInMs: WAIT_MS });
    await assert.rejects(plain, /requires sessions to create a non-sessionful message receiver/);
    // With a name given, this client tells every refusal as a session that is locked.
    await assert.rejects(client.acceptNextSession("orders"), /cannot be created on an entity that does not require/);
  });
});

// S-80
test("receive and delete takes what a session has", async (t) => {
  const broker = await withSessions(t);
  await sendTo(broker, ["a", 1], ["a", 2], ["b", 3]);
  await connected(broker, async (client) => {
    const receiver = await client.acceptSession(QUEUE, "a", { receiveMode: "receiveAndDelete" });
    assert.deepEqual((await receive(receiver, 2)).map((message) => message.body), [1, 2]);
  });
  await broker.restart();
  await connected(broker, async (client) => {
    const receiver = await client.acceptNextSession(QUEUE);
    assert.equal(receiver.sessionId, "b");
  });
});
