// What was accepted survives kill -9; what was completed stays away.

import assert from "node:assert/strict";
import { test } from "node:test";
import { connected, isEmpty, receive, send } from "./client.mjs";
import { Otobus } from "./otobus.mjs";

const BODY = Buffer.from("two coffees, no sugar \u0000\u00ff", "latin1");
const PROPERTIES = { table: 7, vip: true, guest: "Ayşe" };

test("a message survives SIGKILL and a completed one stays away", async (t) => {
  const broker = await Otobus.forTest(t);
  const before = Date.now();
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    await sender.sendMessages({ body: BODY, messageId: "order-1", applicationProperties: PROPERTIES });
    await broker.kill();
  });
  const after = Date.now();

  await broker.start();
  await connected(broker, async (client) => {
    const receiver = client.createReceiver("orders");
    const [message, ...others] = await receiver.receiveMessages(5, { maxWaitTimeInMs: 2_000 });
    assert.equal(others.length, 0);
    assert.deepEqual(Buffer.from(message.body), BODY);
    assert.deepEqual({ ...message.applicationProperties }, PROPERTIES);
    assert.equal(message.messageId, "order-1");
    assert.equal(message.sequenceNumber.toString(), "1");
    const enqueued = message.enqueuedTimeUtc.getTime();
    assert.ok(before <= enqueued && enqueued <= after, `enqueued at ${enqueued}, sent in ${before}..${after}`);
    await receiver.completeMessage(message);
    await broker.kill();
  });

  await broker.start();
  assert.ok(await isEmpty(broker));
});

test("every accepted message is there once and in order after SIGKILL", async (t) => {
  const broker = await Otobus.forTest(t);
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    for (let number = 0; number < 50; number++) await sender.sendMessages({ body: number });
    await broker.kill();
  });

  await broker.start();
  await connected(broker, async (client) => {
    const receiver = client.createReceiver("orders");
    const messages = await receive(receiver, 50);
    assert.deepEqual(messages.map((message) => message.body), [...Array(50).keys()]);
    for (const message of messages) await receiver.completeMessage(message);
  });
  assert.ok(await isEmpty(broker));
});

test("numbers go on after SIGKILL and are never given twice", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: "first" });
  await broker.restart();
  await send(broker, { body: "second" });
  await connected(broker, async (client) => {
    const messages = await receive(client.createReceiver("orders"), 2);
    const seen = messages.map((message) => [message.body, message.sequenceNumber.toString()]);
    assert.deepEqual(seen, [["first", "1"], ["second", "2"]]);
  });
});
