// rhea, a plain AMQP 1.0 client that knows nothing of Service Bus: SASL PLAIN with a policy and its key.

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import rhea from "rhea";
import { Otobus } from "./otobus.mjs";

const POLICY = "RootManageSharedAccessKey";

// A connection that is open, closed with the test.
async function connected(t, broker, options = {}) {
  const container = rhea.create_container();
  const connection = container.connect({
    host: "localhost",
    port: broker.port,
    username: POLICY,
    password: "SAS_KEY_VALUE",
    reconnect: false,
    ...options,
  });
  t.after(() => connection.close());
  await once(connection, "connection_open");
  return connection;
}

async function sender(connection, address) {
  const opened = connection.open_sender(address);
  await once(opened, "sendable");
  return opened;
}

// Sends and returns what became of it.
async function send(opened, message) {
  opened.send(message);
  const outcomes = ["accepted", "rejected", "released", "modified"];
  return Promise.race(outcomes.map((name) => once(opened, name).then(() => name)));
}

// A receiver that takes only what it asks for.
function receiver(connection, source, options = {}) {
  return connection.open_receiver({ source, credit_window: 0, autoaccept: false, ...options });
}

async function next(opened) {
  opened.add_credit(1);
  const [context] = await once(opened, "message");
  return context;
}

for (const [name, secure] of [["plain", false], ["TLS", true]]) {
  test(`messages are sent, accepted, released and rejected over ${name}`, async (t) => {
    const broker = await Otobus.forTest(t);
    const connection = await connected(t, broker, secure ? { transport: "tls", ca: await broker.ca() } : {});
    const orders = await sender(connection, "orders");
    for (let n = 0; n < 3; n++) {
      const message = { message_id: `m${n}`, subject: "s", body: { n }, application_properties: { k: n } };
      assert.equal(await send(orders, message), "accepted");
    }
    const taking = receiver(connection, "orders");
    const first = await next(taking);
    assert.deepEqual([first.message.message_id, first.message.subject, first.message.body], ["m0", "s", { n: 0 }]);
    assert.deepEqual(first.message.application_properties, { k: 0 });
    assert.equal(first.message.message_annotations["x-opt-sequence-number"], 1);
    first.delivery.accept();
    const second = await next(taking);
    second.delivery.modified({ delivery_failed: true, undeliverable_here: false });
    // Nobody told when it is free again: it may come before the third message or after it.
    for (let n = 0; n < 2; n++) {
      const context = await next(taking);
      const { message_id: id, delivery_count: count } = context.message;
      assert.equal(count, id === "m1" ? 1 : 0);
      if (id === "m1") context.delivery.reject({ condition: "com.contoso:unfit", description: "not today" });
      else context.delivery.accept();
    }
    const dead = await next(receiver(connection, "orders/$DeadLetterQueue"));
    assert.equal(dead.message.message_id, "m1");
    dead.delivery.accept();
  });
}

test("a receiver that is drained gives its credit back", async (t) => {
  const broker = await Otobus.forTest(t);
  const connection = await connected(t, broker);
  await send(await sender(connection, "orders"), { body: "one" });
  const taking = receiver(connection, "orders");
  let count = 0;
  taking.on("message", (context) => {
    count += 1;
    context.delivery.accept();
  });
  const drained = once(taking, "receiver_drained");
  taking.add_credit(10);
  taking.drain_credit();
  await drained;
  assert.equal(count, 1);
  assert.equal(taking.credit, 0);
});

test("what is missing is refused by name, and a wrong key by its class", async (t) => {
  const broker = await Otobus.forTest(t);
  const connection = await connected(t, broker);
  const nowhere = connection.open_sender("nowhere");
  await once(nowhere, "sender_error");
  assert.equal(nowhere.error.condition, "amqp:not-found");
  assert.match(nowhere.error.description, /nowhere/);
  const wrong = rhea.create_container().connect({
    host: "localhost", port: broker.port, username: POLICY, password: "wrong", reconnect: false,
  });
  const [{ error }] = await Promise.race([once(wrong, "connection_error"), once(wrong, "disconnected")]);
  assert.match(`${error?.condition} ${error}`, /unauthorized|authenticat/i);
});
