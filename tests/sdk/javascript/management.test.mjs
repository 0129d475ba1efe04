// Everything that the administration client can do, every property there and back.

import { ServiceBusAdministrationClient } from "@azure/service-bus";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Otobus } from "./otobus.mjs";

const KEY = "c3VjaCBhIGxvbmcga2V5IHdpdGggNDQgY2hhcmFjdGVycyE=";

const STORED = {
  defaultMessageTimeToLive: "PT11M",
  autoDeleteOnIdle: "PT10M",
  enableBatchedOperations: false,
  userMetadata: "a <note> & more",
  duplicateDetectionHistoryTimeWindow: "PT12M",
  maxSizeInMegabytes: 2048,
};
const RECEIVED = { lockDuration: "PT13S", maxDeliveryCount: 14, deadLetteringOnMessageExpiration: true };
// Some exclude each other, so there are two of each; what is on in one is off in the other.
const QUEUE = {
  ...STORED,
  ...RECEIVED,
  requiresSession: true,
  requiresDuplicateDetection: false,
  enablePartitioning: false,
  enableExpress: true,
  maxMessageSizeInKilobytes: 2048,
  status: "SendDisabled",
  availabilityStatus: "Available",
};
const DETECTING_QUEUE = {
  ...QUEUE,
  requiresSession: false,
  requiresDuplicateDetection: true,
  enablePartitioning: true,
  enableExpress: false,
  enableBatchedOperations: true,
  deadLetteringOnMessageExpiration: false,
  status: "ReceiveDisabled",
};
const TOPIC = {
  ...STORED,
  requiresDuplicateDetection: true,
  supportOrdering: false,
  enablePartitioning: false,
  enableExpress: false,
  maxMessageSizeInKilobytes: 2048,
  status: "Active",
  availabilityStatus: "Available",
};
const EXPRESS_TOPIC = {
  ...TOPIC,
  requiresDuplicateDetection: false,
  supportOrdering: true,
  enablePartitioning: true,
  enableExpress: true,
  enableBatchedOperations: true,
  status: "SendDisabled",
};
const SUBSCRIPTION = {
  ...RECEIVED,
  defaultMessageTimeToLive: "PT11M",
  autoDeleteOnIdle: "PT10M",
  enableBatchedOperations: false,
  userMetadata: "a <note> & more",
  requiresSession: true,
  deadLetteringOnFilterEvaluationExceptions: false,
};

const versions = ["2017-04", "2021-05"];

async function administration(broker, serviceVersion = undefined) {
  const options = { tlsOptions: { ca: await broker.ca() }, retryOptions: { maxRetries: 0 }, serviceVersion };
  return new ServiceBusAdministrationClient(broker.connectionString(), options);
}

async function all(list) {
  const found = [];
  for await (const each of list) found.push(each);
  return found;
}

function shown(entity, expected) {
  return Object.fromEntries(Object.keys(expected).map((name) => [name, entity[name]]));
}

const isNotFound = (error) => error.code === "MessageEntityNotFoundError" || error.statusCode === 404;

test("every property of a queue comes back", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  await admin.createQueue("target");
  const accessRights = ["Listen"];
  const rule = { claimType: "SharedAccessKey", claimValue: "None", accessRights, keyName: "reader", primaryKey: KEY, secondaryKey: KEY };
  const options = { ...QUEUE, forwardTo: "target", forwardDeadLetteredMessagesTo: "target", authorizationRules: [rule] };
  for (const [name, table] of Object.entries({ plain: QUEUE, detecting: DETECTING_QUEUE })) {
    const created = await admin.createQueue(name, table);
    assert.deepEqual(shown(created, table), table);
    await admin.updateQueue(created);
    assert.deepEqual(shown(await admin.getQueue(name), table), table);
  }
  const created = await admin.createQueue("Q/One", options);
  const listed = (await all(admin.listQueues())).find((queue) => queue.name === "Q/One");
  // K-23: also the time after which it would be deleted, did it not forward.
  const expected = QUEUE;
  for (const queue of [created, await admin.getQueue("Q/One"), listed]) {
    assert.equal(queue.name, "Q/One");
    assert.deepEqual(shown(queue, QUEUE), expected);
    assert.match(queue.forwardTo, /target$/);
    assert.match(queue.forwardDeadLetteredMessagesTo, /target$/);
    assert.deepEqual(shown(queue.authorizationRules[0], { accessRights, keyName: 1, primaryKey: 1, secondaryKey: 1 }), {
      accessRights,
      keyName: "reader",
      primaryKey: KEY,
      secondaryKey: KEY,
    });
  }
});

for (const version of versions) {
  test(`a queue is updated and its fixed properties are not, ${version}`, async (t) => {
    const broker = await Otobus.forTest(t);
    const admin = await administration(broker, version);
    const queue = await admin.createQueue("q");
    queue.lockDuration = "PT30S";
    queue.status = "ReceiveDisabled";
    queue.userMetadata = "changed";
    await admin.updateQueue(queue);
    const read = await admin.getQueue("q");
    assert.deepEqual([read.lockDuration, read.status, read.userMetadata], ["PT30S", "ReceiveDisabled", "changed"]);
    await assert.rejects(admin.updateQueue({ ...read, requiresSession: true }), (error) => error.statusCode === 400);
    await assert.rejects(admin.updateQueue({ ...read, name: "missing" }), isNotFound);
    assert.equal(await admin.queueExists("missing"), false);
  });
}

test("runtime properties of everything", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  await admin.createTopic("t");
  await admin.createSubscription("t", "s");
  for (const queue of [await admin.getQueueRuntimeProperties("orders"), ...(await all(admin.listQueuesRuntimeProperties()))]) {
    assert.equal(queue.totalMessageCount, 0);
    assert.ok(queue.createdAt instanceof Date && queue.accessedAt instanceof Date);
  }
  for (const topic of [await admin.getTopicRuntimeProperties("t"), ...(await all(admin.listTopicsRuntimeProperties()))]) {
    assert.deepEqual([topic.subscriptionCount, topic.sizeInBytes, topic.scheduledMessageCount], [1, 0, 0]);
  }
  const subscriptions = await all(admin.listSubscriptionsRuntimeProperties("t"));
  for (const subscription of [await admin.getSubscriptionRuntimeProperties("t", "s"), ...subscriptions]) {
    assert.deepEqual([subscription.totalMessageCount, subscription.deadLetterMessageCount], [0, 0]);
  }
});

test("every property of a topic comes back", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  const express = await admin.createTopic("express", EXPRESS_TOPIC);
  assert.deepEqual(shown(express, EXPRESS_TOPIC), EXPRESS_TOPIC);
  await admin.updateTopic(express);
  assert.deepEqual(shown(await admin.getTopic("express"), EXPRESS_TOPIC), EXPRESS_TOPIC);
  await admin.deleteTopic("express");
  const created = await admin.createTopic("t", TOPIC);
  for (const topic of [created, await admin.getTopic("t"), ...(await all(admin.listTopics()))]) {
    assert.equal(topic.name, "t");
    assert.deepEqual(shown(topic, TOPIC), TOPIC);
  }
  await admin.updateTopic({ ...created, status: "SendDisabled", maxSizeInMegabytes: 3072 });
  const read = await admin.getTopic("t");
  assert.deepEqual([read.status, read.maxSizeInMegabytes], ["SendDisabled", 3072]);
  assert.equal(await admin.topicExists("t"), true);
  await admin.deleteTopic("t");
  assert.equal(await admin.topicExists("t"), false);
});

test("every property of a subscription comes back", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  await admin.createTopic("t");
  const plain = await admin.createSubscription("t", "plain", SUBSCRIPTION);
  assert.deepEqual(shown(plain, SUBSCRIPTION), SUBSCRIPTION);
  await admin.deleteSubscription("t", "plain");
  const defaultRuleOptions = { name: "mine", filter: { sqlExpression: "a = 1" } };
  const created = await admin.createSubscription("t", "s", { ...SUBSCRIPTION, forwardTo: "orders", defaultRuleOptions });
  // K-23: also the time after which it would be deleted, did it not forward.
  const expected = SUBSCRIPTION;
  for (const each of [created, await admin.getSubscription("t", "s"), ...(await all(admin.listSubscriptions("t")))]) {
    assert.deepEqual([each.topicName, each.subscriptionName], ["t", "s"]);
    assert.deepEqual(shown(each, SUBSCRIPTION), expected);
    assert.match(each.forwardTo, /orders$/);
  }
  assert.deepEqual((await all(admin.listRules("t", "s"))).map((rule) => rule.name), ["mine"]);
  await admin.updateSubscription({ ...created, maxDeliveryCount: 20 });
  assert.equal((await admin.getSubscription("t", "s")).maxDeliveryCount, 20);
  assert.equal(await admin.subscriptionExists("t", "s"), true);
  await admin.deleteSubscription("t", "s");
  assert.equal(await admin.subscriptionExists("t", "s"), false);
  await assert.rejects(admin.createSubscription("nowhere", "s"), isNotFound);
});

test("every kind of rule comes back", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  await admin.createTopic("t");
  await admin.createSubscription("t", "s");
  const when = new Date("2020-07-05T11:12:13.000Z");
  const applicationProperties = { text: "x", number: 7, flag: true, when };
  const correlation = {
    correlationId: "c", messageId: "m", to: "t", replyTo: "r", subject: "l", sessionId: "s",
    replyToSessionId: "rs", contentType: "ct", applicationProperties,
  };
  await admin.createRule("t", "s", "correlation", correlation);
  const sql = { sqlExpression: "user.[a.b] = @text", sqlParameters: { "@text": "x", "@number": 7 } };
  const action = { sqlExpression: "SET x = @number", sqlParameters: { "@number": 7 } };
  await admin.createRule("t", "s", "sql", sql, action);

  const read = (await admin.getRule("t", "s", "correlation")).filter;
  assert.deepEqual({ ...read, applicationProperties: undefined }, { ...correlation, applicationProperties: undefined });
  assert.deepEqual(read.applicationProperties, applicationProperties);
  const rule = await admin.getRule("t", "s", "sql");
  assert.deepEqual(rule.filter, sql);
  assert.deepEqual(rule.action, action);
  assert.deepEqual((await all(admin.listRules("t", "s"))).map((each) => each.name), ["$Default", "correlation", "sql"]);

  await admin.updateRule("t", "s", { ...rule, filter: { sqlExpression: "b = 2" } });
  assert.equal((await admin.getRule("t", "s", "sql")).filter.sqlExpression, "b = 2");
  assert.equal(await admin.ruleExists("t", "s", "sql"), true);
  await admin.deleteRule("t", "s", "sql");
  assert.equal(await admin.ruleExists("t", "s", "sql"), false);
});

test("the namespace describes itself", async (t) => {
  const broker = await Otobus.forTest(t);
  const properties = await (await administration(broker)).getNamespaceProperties();
  assert.deepEqual([properties.name, properties.messagingSku, properties.messagingUnits], ["default", "Premium", 1]);
});

test("lists come in pages of the size asked for", async (t) => {
  const broker = await Otobus.forTest(t);
  const admin = await administration(broker);
  for (const name of ["c", "a", "b", "d"]) await admin.createTopic(name);
  const pages = [];
  for await (const page of admin.listTopics().byPage({ maxPageSize: 3 })) pages.push(page.map((topic) => topic.name));
  assert.deepEqual(pages, [["a", "b", "c"], ["d"]]);
});
