// AMQP over WebSocket in TLS, on the same port as everything else.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";
import { Otobus } from "./otobus.mjs";

test("a message is sent and received over WebSocket", async (t) => {
  const broker = await Otobus.forTest(t);
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ["--experimental-websocket", new URL("websocket.client.mjs", import.meta.url).pathname, broker.connectionString()],
    { env: { ...process.env, NODE_EXTRA_CA_CERTS: broker.caFile } },
  );
  assert.equal(stdout.trim(), "over the web");
});
