// Topics through the official SDK: copies, their lives, schedules, filters, actions.

import { ServiceBusAdministrationClient } from "@azure/service-bus";
import assert from "node:assert/strict";
import { test } from "node:test";
import { connected, receive } from "./client.mjs";
import { Otobus } from "./otobus.mjs";

async function administration(broker) {
  const options = { tlsOptions: { ca: await broker.ca() }, retryOptions: { maxRetries: 0 } };
  return new ServiceBusAdministrationClient(broker.connectionString(), options);
}

async function news(broker, ...names) {
  const admin = await administration(broker);
  await admin.createTopic("news");
  for (const name of names) await admin.createSubscription("news", name);
  return admin;
}

// S-36, S-81, S-90, S-100, S-180
test("every subscription has a copy with a life of its own", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await news(broker, "ada", "bo");
  await connected(broker, async (client) => {
    const sender = client.createSender("news");
    await sender.sendMessages([{ body: "one", messageId: "1" }, { body: "two" }]);
    const ada = client.createReceiver("news", "ada");
    const [one, two] = await receive(ada, 2);
    assert.deepEqual([one.body, one.messageId, one.enqueuedSequenceNumber], ["one", "1", 1]);
    await ada.completeMessage(one);
    await ada.deadLetterMessage(two, { deadLetterReason: "why" });
    const dead = client.createReceiver("news", "ada", { subQueueType: "deadLetter" });
    const [letter] = await receive(dead, 1);
    assert.deepEqual([letter.body, letter.deadLetterReason], ["two", "why"]);
    const seen = await client.createReceiver("news", "bo").peekMessages(10);
    assert.deepEqual(seen.map((message) => [message.body, message.deliveryCount]), [["one", 0], ["two", 0]]);
    const counts = await admin.getSubscriptionRuntimeProperties("news", "ada");
    assert.deepEqual([counts.activeMessageCount, counts.deadLetterMessageCount], [0, 1]);
  });
});

// S-42, S-43, S-234
test("a scheduled message waits at the topic", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await news(broker, "ada");
  await connected(broker, async (client) => {
    const sender = client.createSender("news");
    const due = new Date(Date.now() + 3_600_000);
    const [first] = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], due);
    await sender.cancelScheduledMessages(first);
    assert.deepEqual(await client.createReceiver("news", "ada").peekMessages(10), []);
    assert.equal((await admin.getTopicRuntimeProperties("news")).scheduledMessageCount, 1);
  });
});

// S-182, S-185, S-193, S-203, S-205
test("filters select and actions change copies of their own", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await news(broker, "red", "typed", "act");
  for (const name of ["red", "typed", "act"]) await admin.deleteRule("news", name, "$Default");
  const parameters = { "@color": "red", "@least": 5 };
  await admin.createRule("news", "red", "r", { sqlExpression: "color = @color AND n > @least", sqlParameters: parameters });
  await admin.createRule("news", "typed", "r", { subject: "s", applicationProperties: { n: 7, truth: true } });
  const action = { sqlExpression: "SET n = n * 2; SET sys.Label = 'new'; REMOVE color" };
  await admin.createRule("news", "act", "double", { sqlExpression: "EXISTS(color)" }, action);
  await connected(broker, async (client) => {
    await client.createSender("news").sendMessages([
      { body: "1", subject: "s", applicationProperties: { color: "red", n: 7, truth: true } },
      { body: "2", subject: "s", applicationProperties: { color: "blue", n: 7.5 } },
      { body: "3", applicationProperties: { n: 7, truth: true } },
    ]);
    const seen = async (name) => (await client.createReceiver("news", name).peekMessages(10)).map((m) => m.body);
    assert.deepEqual(await seen("red"), ["1"]);
    assert.deepEqual(await seen("typed"), ["1"]);
    const [first, second] = await receive(client.createReceiver("news", "act"), 2);
    assert.equal(first.subject, "new");
    assert.deepEqual(first.applicationProperties, { n: 14, truth: true, RuleName: "double" });
    assert.equal(second.applicationProperties.n, 15);
  });
});

// S-184, S-188, A-7.7: the rule manager speaks to the subscription itself.
test("rules are added, listed and removed over AMQP", async (t) => {
  const broker = await Otobus.forTest(t);
  await news(broker, "ada");
  await connected(broker, async (client) => {
    const manager = client.createRuleManager("news", "ada");
    await manager.deleteRule("$Default");
    const missing = /The messaging entity 'sb:\/\/[^/]+\/news\/Subscriptions\/ada\/Rules\/\$Default' could not be found/;
    await assert.rejects(manager.deleteRule("$Default"), missing);
    await manager.createRule("all", { sqlExpression: "1=1" }, { sqlExpression: "SET sys.Label='new'" });
    const filter = { subject: "s", applicationProperties: { "Is.Event": true, n: 7 } };
    await manager.createRule("typed", filter);
    await manager.createRule("sql", { sqlExpression: "n > 5" });
    await assert.rejects(manager.createRule("sql", { sqlExpression: "n > 6" }), { code: "MessagingEntityAlreadyExists" });
    await assert.rejects(manager.createRule("bad", { sqlExpression: "n >" }));
    const rules = {};
    for await (const rule of manager.listRules()) rules[rule.name] = rule;
    assert.deepEqual(Object.keys(rules).sort(), ["all", "sql", "typed"]);
    assert.equal(rules.all.action.sqlExpression, "SET sys.Label='new'");
    assert.equal(rules.sql.filter.sqlExpression, "n > 5");
    assert.deepEqual(rules.typed.filter.applicationProperties, filter.applicationProperties);
    await client.createSender("news").sendMessages({ body: "x", subject: "s", applicationProperties: { n: 7 } });
    const seen = await client.createReceiver("news", "ada").peekMessages(10);
    assert.deepEqual(seen.map((message) => message.subject).sort(), ["new", "s"]);
  });
});
