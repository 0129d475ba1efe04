// How the tests reach the broker through the official SDK: a fresh client for each step, so that nothing but the
// broker remembers anything.

import { ServiceBusClient } from "@azure/service-bus";
import { WAIT_MS } from "./otobus.mjs";

const NO_RETRIES = { retryOptions: { maxRetries: 0, timeoutInMs: 10_000 } };

// Runs `use(client)` and closes the client, also when the broker is already gone.
export async function connected(broker, use, key = undefined) {
  const client = new ServiceBusClient(broker.connectionString(key), NO_RETRIES);
  try {
    return await use(client);
  } finally {
    await client.close().catch(() => {});
  }
}

export async function send(broker, ...messages) {
  await connected(broker, async (client) => {
    const sender = client.createSender("orders");
    for (const message of messages) await sender.sendMessages(message);
  });
}

// Exactly `count` messages, or what came until none came any more.
export async function receive(receiver, count) {
  const received = [];
  while (received.length < count) {
    const messages = await receiver.receiveMessages(count - received.length, { maxWaitTimeInMs: WAIT_MS });
    if (messages.length === 0) break;
    received.push(...messages);
  }
  return received;
}

export async function isEmpty(broker, queue = "orders") {
  return connected(broker, async (client) => (await receive(client.createReceiver(queue), 1)).length === 0);
}
