// The built broker as a process of its own, for black-box tests.
//
// Each broker has its own folder (configuration and data) and its own free ports. It can be killed and started
// again on the same data, and it is always ended by its process id. The binary is named by OTOBUS_BIN.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

// A start takes milliseconds; this bounds a start that never comes.
const START_DEADLINE_MS = 60_000;
const EMULATOR_KEY = "SAS_KEY_VALUE";

// Long enough for a message that is there, paid in full only where a test proves that none is.
export const WAIT_MS = 2_000;

export class Otobus {
  #folder;
  #process = null;
  #ended = null;
  #port = null;
  #itemsPort = null;
  #hasItems;

  constructor(folder, hasItems = false) {
    this.#folder = folder;
    this.#hasItems = hasItems;
  }

  // A running broker with the queue `orders`, ended with the test.
  static async forTest(t, { hasItems = false, flags = [] } = {}) {
    const folder = await mkdtemp(join(tmpdir(), "otobus-"));
    await writeFile(join(folder, "otobus.toml"), '[[queue]]\nname = "orders"\n');
    const broker = new Otobus(folder, hasItems);
    t.after(async () => {
      await broker.kill();
      t.diagnostic(await readFile(join(folder, "otobus.log"), "utf8"));
      await rm(folder, { recursive: true, force: true });
    });
    await broker.start(flags);
    return broker;
  }

  async start(more = []) {
    const ready = join(this.#folder, "ready.json");
    await rm(ready, { force: true });
    const log = await open(join(this.#folder, "otobus.log"), "a");
    const flags = [
      ["--config", join(this.#folder, "otobus.toml")],
      ["--data", join(this.#folder, "data")],
      ["--listen-bus", "127.0.0.1:0"],
      ["--listen-items", this.#hasItems ? "127.0.0.1:0" : "none"],
      ["--ready-file", ready],
    ];
    this.#process = spawn(process.env.OTOBUS_BIN, [...flags.flat(), ...more], {
      cwd: this.#folder,
      stdio: ["ignore", log.fd, log.fd],
    });
    this.#ended = once(this.#process, "exit");
    await log.close();
    this.#port = await this.#waitForPort(ready);
  }

  async #waitForPort(ready) {
    const deadline = Date.now() + START_DEADLINE_MS;
    while (Date.now() < deadline && this.#process.exitCode === null) {
      const text = await readFile(ready, "utf8").catch(() => "");
      if (text) {
        const told = JSON.parse(text);
        this.#itemsPort = told.items.map((address) => Number(address.split(":").pop()))[0];
        return Number(told.bus[0].split(":").pop());
      }
      await sleep(2);
    }
    const log = await readFile(join(this.#folder, "otobus.log"), "utf8");
    throw new Error(`the broker did not start (exit status ${this.#process.exitCode}):\n${log}`);
  }

  // Ends the broker as a power cut would: SIGKILL, nothing flushed, nothing said.
  async kill() {
    if (this.#process === null) return;
    this.#process.kill("SIGKILL");
    await this.#ended;
    this.#process = null;
  }

  // SIGKILL, then a new process on the same data.
  async restart() {
    await this.kill();
    await this.start();
  }

  // The certificate authority that clients are told to trust.
  async ca() {
    return readFile(this.caFile, "utf8");
  }

  get caFile() {
    return join(this.#folder, "data", "tls", "ca.pem");
  }

  get port() {
    return this.#port;
  }

  itemsEndpoint(scheme = "https") {
    return `${scheme}://localhost:${this.#itemsPort}/`;
  }

  connectionString(key = EMULATOR_KEY) {
    return (
      `Endpoint=sb://127.0.0.1:${this.#port};SharedAccessKeyName=RootManageSharedAccessKey;` +
      `SharedAccessKey=${key};UseDevelopmentEmulator=true;`
    );
  }
}
