// Queues made, read and removed by the official administration client, over HTTPS with the broker's own CA.

import { ServiceBusAdministrationClient } from "@azure/service-bus";
import assert from "node:assert/strict";
import { test } from "node:test";
import { connected, receive, send } from "./client.mjs";
import { Otobus } from "./otobus.mjs";

async function administration(broker, key = undefined) {
  const options = { tlsOptions: { ca: await broker.ca() }, retryOptions: { maxRetries: 0 } };
  return new ServiceBusAdministrationClient(broker.connectionString(key), options);
}

async function queueNames(admin) {
  const names = [];
  for await (const queue of admin.listQueues()) names.push(queue.name);
  return names.sort();
}

const isNotFound = (error) => error.code === "MessageEntityNotFoundError" || error.statusCode === 404;

test("a queue is created, read, listed and deleted", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  const created = await admin.createQueue("invoices", { lockDuration: "PT30S", maxDeliveryCount: 4 });
  assert.equal(created.name, "invoices");

  const read = await admin.getQueue("invoices");
  assert.equal(read.lockDuration, "PT30S");
  assert.equal(read.maxDeliveryCount, 4);
  assert.deepEqual(await queueNames(admin), ["invoices", "orders"]);

  await admin.deleteQueue("invoices");
  await assert.rejects(admin.getQueue("invoices"), isNotFound);
  assert.equal(await admin.queueExists("invoices"), false);
  assert.deepEqual(await queueNames(admin), ["orders"]);
});

test("a created queue takes messages and survives SIGKILL", async (t) => {
  const broker = await Otobus.forTest(t);
  await (await administration(broker)).createQueue("invoices");
  await broker.restart();
  await connected(broker, async (client) => {
    await client.createSender("invoices").sendMessages({ body: "due on Monday" });
    const [message] = await receive(client.createReceiver("invoices"), 1);
    assert.equal(message.body, "due on Monday");
  });
});

test("runtime properties count the messages", async (t) => {
  const broker = await Otobus.forTest(t);
  await send(broker, { body: "one" }, { body: "two" });
  const properties = await (await administration(broker)).getQueueRuntimeProperties("orders");
  assert.equal(properties.activeMessageCount, 2);
  assert.equal(properties.totalMessageCount, 2);
  assert.equal(properties.deadLetterMessageCount, 0);
});

test("creating a queue twice is a conflict", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  await assert.rejects(admin.createQueue("orders"), (error) => error.statusCode === 409);
});

test("administration with a wrong key is refused", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker, "bm90IHRoZSBrZXk=");
  await assert.rejects(admin.createQueue("invoices"), (error) => error.statusCode === 401);
  assert.equal(await (await administration(broker)).queueExists("invoices"), false);
});
