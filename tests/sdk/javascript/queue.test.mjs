// Sending to a queue, receiving from it and settling, through the official SDK.

import assert from "node:assert/strict";
import { test } from "node:test";
import { connected, isEmpty, receive, send } from "./client.mjs";
import { Otobus } from "./otobus.mjs";

test("a batch arrives whole with consecutive numbers", async (t) => {
  const broker = await Otobus.forTest(t);
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    const batch = await sender.createMessageBatch();
    for (let n = 0; n < 10; n++) assert.ok(batch.tryAddMessage({ body: `item ${n}`, messageId: `id-${n}` }));
    await sender.sendMessages(batch);
    const messages = await receive(client.createReceiver("orders"), 10);
    const seen = messages.map((m) => [m.body, m.messageId, m.sequenceNumber.toNumber()]);
    assert.deepEqual(seen, [...Array(10).keys()].map((n) => [`item ${n}`, `id-${n}`, n + 1]));
  });
});

// S-17: without ids, and with as many bytes as the client believes there to be room for.
test("a batch that is filled until no more fits is taken", async (t) => {
  const broker = await Otobus.forTest(t);
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    for (const size of [1_000, 20_000]) {
      const batch = await sender.createMessageBatch();
      while (batch.tryAddMessage({ body: "x".repeat(size) }));
      // The rest in ever smaller messages, to the last byte.
      for (let rest = size; rest >= 0; rest--) batch.tryAddMessage({ body: "x".repeat(rest) });
      assert.ok(batch.maxSizeInBytes - batch.sizeInBytes < 64, `${batch.sizeInBytes} of ${batch.maxSizeInBytes}`);
      await sender.sendMessages(batch);
      const receiver = client.createReceiver("orders", { receiveMode: "receiveAndDelete" });
      assert.equal((await receive(receiver, batch.count)).length, batch.count);
      await receiver.close();
    }
  });
});

test("an abandoned message comes back with a higher delivery count", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: "again" });
  await connected(broker, async (client) => {
    const receiver = client.createReceiver("orders");
    const [first] = await receive(receiver, 1);
    await receiver.abandonMessage(first);
    const [second] = await receive(receiver, 1);
    assert.equal(second.body, "again");
    assert.equal(second.sequenceNumber.toString(), "1");
    assert.equal(second.deliveryCount, first.deliveryCount + 1);
    assert.notEqual(second.lockToken, first.lockToken);
    await receiver.completeMessage(second);
  });
  assert.ok(await isEmpty(broker));
});

test("receive and delete takes the message for good", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: "once" });
  await connected(broker, async (client) => {
    const receiver = client.createReceiver("orders", { receiveMode: "receiveAndDelete" });
    const [message] = await receive(receiver, 1);
    assert.equal(message.body, "once");
  });
  await broker.restart();
  assert.ok(await isEmpty(broker));
});

test("three hundred sends arrive in order", async (t) => {
  const broker = await Otobus.forTest(t);
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    for (let number = 0; number < 300; number++) await sender.sendMessages({ body: number });
    const receiver = client.createReceiver("orders");
    const messages = await receive(receiver, 300);
    assert.deepEqual(messages.map((message) => message.body), [...Array(300).keys()]);
    for (const message of messages) await receiver.completeMessage(message);
  });
  assert.ok(await isEmpty(broker));
});

test("a subscribed handler gets and completes every message", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: 1 }, { body: 2 }, { body: 3 });
  await connected(broker, async (client) => {
    const receiver = client.createReceiver("orders");
    const bodies = await new Promise((resolve, reject) => {
      const seen = [];
      receiver.subscribe({
        processMessage: async (message) => {
          seen.push(message.body);
          if (seen.length === 3) resolve(seen);
        },
        processError: async ({ error }) => reject(error),
      });
    });
    assert.deepEqual(bodies, [1, 2, 3]);
    await receiver.close();
  });
  assert.ok(await isEmpty(broker));
});

// and 9.3: JavaScript decides by the text that the entity is missing for good.
test("an unknown queue is refused as a missing entity", async (t) => {
  const broker = await Otobus.forTest(t);
  await connected(broker, async (client) => {
    const refused = client.createSender("nowhere").sendMessages({ body: "lost" });
    await assert.rejects(refused, (error) => {
      assert.equal(error.code, "MessagingEntityNotFound");
      assert.match(error.message, /The messaging entity .*nowhere.* could not be found/);
      return true;
    });
  });
});

test("a wrong key is refused", async (t) => {
  const broker = await Otobus.forTest(t);
  const useWrongKey = async (client) => client.createSender("orders").sendMessages({ body: "intruder" });
  const refused = connected(broker, useWrongKey, "bm90IHRoZSBrZXk=");
  await assert.rejects(refused, (error) => error.code === "UnauthorizedAccess");
  assert.ok(await isEmpty(broker));
});
