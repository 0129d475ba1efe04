// Items through the official JavaScript SDK, over TLS with the broker's CA and in plain text.

import assert from "node:assert/strict";
import { Agent } from "node:https";
import { test } from "node:test";
import { ChangeFeedMode, ChangeFeedStartFrom, CosmosClient } from "@azure/cosmos";
import { Otobus } from "./otobus.mjs";

const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

async function connect(t, scheme = "https") {
  const broker = await Otobus.forTest(t, { hasItems: true, flags: ["--test-clock"] });
  const agent = scheme === "https" ? new Agent({ ca: await broker.ca(), keepAlive: false }) : undefined;
  const client = new CosmosClient({ endpoint: broker.itemsEndpoint(scheme), key: KEY, agent });
  t.after(() => client.dispose());
  return { broker, client };
}

async function container(t, options = {}, scheme = "http") {
  const { broker, client } = await connect(t, scheme);
  const { database } = await client.databases.createIfNotExists({ id: "d" });
  const { container } = await database.containers.createIfNotExists({ id: "c", partitionKey: "/k", ...options });
  return { broker, client, database, container };
}

for (const scheme of ["https", "http"]) {
  test(`an item lives over ${scheme}`, async (t) => {
    const { container: carts } = await container(t, {}, scheme);
    const { resource: created, statusCode } = await carts.items.create({ id: "1", k: "x", n: 1 });
    assert.equal(statusCode, 201);
    const { resource: read } = await carts.item("1", "x").read();
    assert.deepEqual(read, created);
    const { resource: replaced } = await carts.item("1", "x").replace({ ...read, n: 2 });
    assert.equal(replaced.n, 2);
    const stale = { accessCondition: { type: "IfMatch", condition: read._etag } };
    await assert.rejects(carts.item("1", "x").replace({ ...read, n: 3 }, stale), { code: 412 });
    const { statusCode: upserted } = await carts.items.upsert({ id: "2", k: "x" });
    assert.equal(upserted, 201);
    assert.equal((await carts.item("1", "x").delete()).statusCode, 204);
    const { statusCode: missing, resource } = await carts.item("1", "x").read();
    assert.deepEqual([missing, resource], [404, undefined]);
    await assert.rejects(carts.items.create({ id: "2", k: "x" }), { code: 409 });
  });
}

test("the account is read once, not before every request", async (t) => {
  const { client } = await connect(t, "http");
  const { resource } = await client.getDatabaseAccount();
  assert.notEqual(resource.id, "localhost");
  assert.equal(resource.consistencyPolicy, "Session");
});

test("the change feed tells what is new", async (t) => {
  const { container: carts } = await container(t);
  await carts.items.create({ id: "1", k: "x" });
  const start = ChangeFeedStartFrom.Beginning();
  const feed = carts.items.getChangeFeedIterator({ changeFeedStartFrom: start, changeFeedMode: ChangeFeedMode.LatestVersion });
  const first = await feed.readNext();
  assert.deepEqual(first.result.map((item) => item.id), ["1"]);
  assert.equal((await feed.readNext()).statusCode, 304);
  await carts.items.create({ id: "2", k: "y" });
  const second = await feed.readNext();
  assert.deepEqual(second.result.map((item) => item.id), ["2"]);
});

test("a wrong key is refused", async (t) => {
  const { broker } = await connect(t, "http");
  const wrong = new CosmosClient({ endpoint: broker.itemsEndpoint("http"), key: "d3Jvbmc=" });
  await assert.rejects(wrong.databases.create({ id: "d" }), { code: 401 });
});
