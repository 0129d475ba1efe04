// Sends and receives one message over WebSocket. A process of its own, because Node reads the CA to trust and the flag
// for its WebSocket once, at its start. The connection string is its argument.

import { ServiceBusClient } from "@azure/service-bus";

const options = { webSocketOptions: { webSocket: WebSocket }, retryOptions: { maxRetries: 0, timeoutInMs: 10_000 } };
const client = new ServiceBusClient(process.argv[2], options);
await client.createSender("orders").sendMessages({ body: "over the web" });
const [message] = await client.createReceiver("orders").receiveMessages(1, { maxWaitTimeInMs: 2_000 });
console.log(message?.body);
await client.close();
