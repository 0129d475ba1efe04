// Rules of a message's life that only show from end to end: properties, duplicates, forwarding.

import { ServiceBusAdministrationClient } from "@azure/service-bus";
import assert from "node:assert/strict";
import { test } from "node:test";
import { connected, receive } from "./client.mjs";
import { Otobus } from "./otobus.mjs";

async function administration(broker) {
  const options = { tlsOptions: { ca: await broker.ca() }, retryOptions: { maxRetries: 0 } };
  return new ServiceBusAdministrationClient(broker.connectionString(), options);
}

// S-1, S-2, S-5
test("every property that a sender sets comes back", async (t) => {
  const broker = await Otobus.forTest(t);
  const sent = {
    contentType: "application/json",
    correlationId: "correlation",
    subject: "subject",
    messageId: "id",
    partitionKey: "session",
    replyTo: "replies",
    replyToSessionId: "reply session",
    sessionId: "session",
    timeToLive: 180_000,
    to: "nowhere",
    body: { table: 7 },
    applicationProperties: { text: "ş", number: 7, real: 0.5, truth: true, none: null },
  };
  await connected(broker, async (client) => {
    await client.createSender("orders").sendMessages(sent);
    const [message] = await receive(client.createReceiver("orders"), 1);
    for (const [name, value] of Object.entries(sent)) assert.deepEqual({ ...message }[name], value, name);
  });
});

// S-37, S-160
test("a duplicate is accepted and dropped", async (t) => {
  const broker = await Otobus.forTest(t);
  await (await administration(broker)).createQueue("once", { requiresDuplicateDetection: true });
  await connected(broker, async (client) => {
    const sender = client.createSender("once");
    for (const messageId of ["a", "b", "a", 1, 1, "1"]) await sender.sendMessages({ body: "x", messageId });
    await sender.sendMessages([{ body: "no id" }, { body: "no id" }]);
    const seen = await client.createReceiver("once").peekMessages(10);
    assert.deepEqual(seen.slice(0, 2).map((message) => message.messageId), ["a", "b"]);
    assert.deepEqual(seen.map((message) => Number(message.sequenceNumber)), seen.map((_, at) => at + 1));
    assert.equal(seen.filter((message) => message.body === "no id").length, 2);
  });
});

// S-36, S-170
test("a queue forwards what it is sent", async (t) => {
  const broker = await Otobus.forTest(t);
  await (await administration(broker)).createQueue("entry", { forwardTo: "orders" });
  await connected(broker, async (client) => {
    await client.createSender("entry").sendMessages({ body: "forwarded", messageId: "id" });
    const [message] = await receive(client.createReceiver("orders"), 1);
    assert.deepEqual([message.body, message.messageId], ["forwarded", "id"]);
    assert.equal(message.enqueuedSequenceNumber, 1);
  });
});
