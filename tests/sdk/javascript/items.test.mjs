// Items through the official JavaScript SDK, over TLS with the broker's CA and in plain text.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { Agent } from "node:https";
import { test } from "node:test";
import { BulkOperationType, CosmosClient, PatchOperationType, ChangeFeedStartFrom, ChangeFeedMode } from "@azure/cosmos";
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

// Moves the items' time, with the signature that every request has.
async function advance(broker, by) {
  const date = new Date().toUTCString();
  const text = `post\n$otobus\n$otobus/clock\n${date.toLowerCase()}\n\n`;
  const signature = createHmac("sha256", Buffer.from(KEY, "base64")).update(text).digest("base64");
  const answer = await fetch(new URL("/$otobus/clock", broker.itemsEndpoint("http")), {
    method: "POST",
    body: JSON.stringify({ advance: by }),
    headers: { authorization: encodeURIComponent(`type=master&ver=1.0&sig=${signature}`), "x-ms-date": date },
  });
  assert.equal(answer.status, 200, await answer.text());
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

test("queries across partitions answer right and page by page", async (t) => {
  const { container: carts } = await container(t);
  for (let n = 0; n < 25; n++) {
    await carts.items.create({ id: `${n}`, k: `k${n % 4}`, n, tags: [n % 2, n % 3] });
  }
  const all = async (query, options) => (await carts.items.query(query, options).fetchAll()).resources;
  assert.deepEqual(await all("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 2 LIMIT 3"), [22, 21, 20]);
  assert.deepEqual(await all("SELECT VALUE COUNT(1) FROM c"), [25]);
  assert.deepEqual(await all("SELECT VALUE SUM(c.n) FROM c WHERE c.k = 'k1'"), [66]);
  const groups = await all("SELECT c.k, MAX(c.n) AS most FROM c GROUP BY c.k");
  assert.deepEqual(groups.map((group) => group.most).sort((a, b) => a - b), [21, 22, 23, 24]);
  assert.deepEqual((await all("SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags")).sort(), [0, 1, 2]);
  const parameters = [{ name: "@n", value: 7 }];
  assert.deepEqual(await all({ query: "SELECT VALUE c.id FROM c WHERE c.n = @n", parameters }), ["7"]);
  assert.equal((await all("SELECT * FROM c", { partitionKey: "k2" })).length, 6);
  const pages = carts.items.query("SELECT VALUE c.n FROM c ORDER BY c.n", { maxItemCount: 4 });
  const seen = [];
  while (pages.hasMoreResults()) {
    const { resources } = await pages.fetchNext();
    assert.ok((resources ?? []).length <= 4);
    seen.push(...(resources ?? []));
  }
  assert.deepEqual(seen, [...Array(25).keys()]);
  await assert.rejects(all("SELECT * FORM c"), { code: 400 });
  const forced = await all("SELECT VALUE c.n FROM c ORDER BY c.n", { forceQueryPlan: true });
  assert.deepEqual(forced, [...Array(25).keys()]);
});

test("time to live ends items, by the container's setting and by their own", async (t) => {
  const { broker, container: carts } = await container(t, { defaultTtl: 100 });
  await carts.items.create({ id: "usual", k: "x" });
  await carts.items.create({ id: "long", k: "x", ttl: 200 });
  await carts.items.create({ id: "never", k: "x", ttl: -1 });
  const ids = async () => (await carts.items.readAll().fetchAll()).resources.map((item) => item.id).sort();
  await advance(broker, "PT90S");
  assert.deepEqual(await ids(), ["long", "never", "usual"]);
  await advance(broker, "PT15S");
  assert.deepEqual(await ids(), ["long", "never"]);
  assert.equal((await carts.item("usual", "x").read()).statusCode, 404);
  assert.equal((await carts.items.create({ id: "usual", k: "x" })).statusCode, 201);
  await advance(broker, "PT100S");
  assert.deepEqual(await ids(), ["never"]);
  for (const ttl of [0, -10, null]) {
    await assert.rejects(carts.items.create({ id: "bad", k: "x", ttl }), { code: 400 });
  }
  const { resource: definition } = await carts.read();
  delete definition.defaultTtl;
  await carts.replace(definition);
  assert.equal((await carts.read()).resource.defaultTtl, undefined);
});

test("patch, batch and bulk", async (t) => {
  const { container: carts } = await container(t);
  await carts.items.create({ id: "1", k: "x", n: 1, list: ["a"] });
  const { resource } = await carts.item("1", "x").patch([
    { op: PatchOperationType.incr, path: "/n", value: 2 },
    { op: PatchOperationType.add, path: "/list/0", value: "b" },
  ]);
  assert.deepEqual([resource.n, resource.list], [3, ["b", "a"]]);
  const conditional = { condition: "from c where c.n = 99", operations: [{ op: "set", path: "/n", value: 0 }] };
  await assert.rejects(carts.item("1", "x").patch(conditional), { code: 412 });
  const batch = await carts.items.batch(
    [
      { operationType: "Create", resourceBody: { id: "2", k: "x" } },
      { operationType: "Delete", id: "1" },
    ],
    "x",
  );
  assert.deepEqual([batch.code, batch.result.map((one) => one.statusCode)], [200, [201, 204]]);
  const failed = await carts.items.batch(
    [
      { operationType: "Create", resourceBody: { id: "3", k: "x" } },
      { operationType: "Create", resourceBody: { id: "2", k: "x" } },
    ],
    "x",
  );
  assert.deepEqual([failed.code, failed.result.map((one) => one.statusCode)], [207, [424, 409]]);
  const operations = [...Array(120).keys()].map((n) => ({
    operationType: BulkOperationType.Create,
    resourceBody: { id: `b${n}`, k: `k${n % 3}` },
    partitionKey: `k${n % 3}`,
  }));
  const results = await carts.items.executeBulkOperations(operations);
  assert.ok(results.every((one) => one.response?.statusCode === 201), JSON.stringify(results.find((one) => one.error)));
  assert.equal((await carts.items.readAll().fetchAll()).resources.length, 121);
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

test("hierarchical and unique keys, throughput and scripts", async (t) => {
  const { client, database } = await container(t);
  const { container: deep } = await database.containers.create({
    id: "deep",
    partitionKey: { paths: ["/a", "/b"], kind: "MultiHash", version: 2 },
    uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/mail"] }] },
    throughput: 400,
  });
  await deep.items.create({ id: "1", a: "x", b: "y", mail: "m" });
  assert.equal((await deep.item("1", ["x", "y"]).read()).resource.mail, "m");
  await assert.rejects(deep.items.create({ id: "2", a: "x", b: "y", mail: "m" }), { code: 409 });
  const { resource: offer } = await deep.readOffer();
  assert.equal(offer.content.offerThroughput, 400);
  offer.content.offerThroughput = 500;
  assert.equal((await client.offer(offer.id).replace(offer)).resource.content.offerThroughput, 500);
  const { storedProcedure } = await deep.scripts.storedProcedures.create({ id: "s", body: "function () {}" });
  assert.equal((await storedProcedure.read()).resource.id, "s");
  await assert.rejects(storedProcedure.execute(["x", "y"]), { code: 400 });
  await storedProcedure.delete();
});

test("a wrong key is refused", async (t) => {
  const { broker } = await connect(t, "http");
  const wrong = new CosmosClient({ endpoint: broker.itemsEndpoint("http"), key: "d3Jvbmc=" });
  await assert.rejects(wrong.databases.create({ id: "d" }), { code: 401 });
});
