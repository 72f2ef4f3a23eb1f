// Against the server at REVERIE_URL, which the test of the Python side starts.

import assert from "node:assert/strict";
import { mkdtemp, mkdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Reverie, ReverieError } from "../src/client.js";
import { localServer } from "../src/node.js";

const options = { agent: "ana", url: process.env["REVERIE_URL"]!, token: process.env["REVERIE_TOKEN"]! };
const memory = new Reverie(options);

test("what is remembered is recalled, and forgotten", async () => {
  const { id } = await memory.remember({ content: "Kate takes oat milk", tags: ["coffee"], wait: "searchable" });
  const found = await memory.memories.search({ query: "oat milk" });
  assert.equal(found.results[0]?.content, "Kate takes oat milk");
  assert.equal((await memory.memories.list({ tag: ["coffee"] })).memories.length, 1);
  assert.deepEqual(await memory.forget({ id }), { deleted: true });
});

test("methods have the names of the Python client by subject", async () => {
  const fact = await memory.facts.set({ category: "taste", key: "a/b ..", value: "tea" });
  assert.equal(fact.value, "tea");
  assert.equal((await memory.facts.get({ category: "taste", key: "a/b .." })).value, "tea");
  assert.ok((await memory.status()).embedder);
});

test("an error says what is wrong, and in which argument", async () => {
  await assert.rejects(memory.recall({ query: "x", limit: 0 }), (error: ReverieError) => {
    assert.equal(error.status, 422);
    assert.match(error.type, /^urn:reverie:problem:/);
    assert.equal(error.field, "limit");
    return true;
  });
  await assert.rejects(new Reverie({ ...options, token: "wrong" }).status(), { status: 401 });
  await assert.rejects(memory.sessions.get({ id: "x" } as never), { message: "get_session: session is required" });
  await assert.rejects(memory.recall("x" as never), { message: "recall takes its arguments as one object" });
  await assert.rejects(new Reverie({ url: "http://127.0.0.1:9" }).status(), /is it running/);
});

test("a token of this user's server is for the agent default unless another is named", async () => {
  const { token, ...rest } = options;
  const agents: unknown[] = [];
  const seen: typeof fetch = (_, request) => {
    agents.push((request!.headers as Record<string, string>)["X-Reverie-Agent"]);
    return Promise.resolve(Response.json({}));
  };
  for (const isLocal of [true, false]) await new Reverie({ ...rest, agent: undefined, token: "rv_x", isLocal, fetch: seen }).status();
  assert.deepEqual(agents, ["default", undefined]);
});

test("an id is one segment of the path, or refused", async () => {
  for (const session of ["a/b", "%2F", "...", "a?b#c", "ü 🙂"]) {
    await memory.sessions.start({ session });
    assert.equal((await memory.sessions.get({ session })).id, session);
  }
  for (const session of ["", ".", ".."]) {
    await assert.rejects(memory.sessions.forget({ session }), { field: "session", status: 0 });
  }
});

test("a signal cancels a call, also one that waits for a busy server", async () => {
  const calls: string[] = [];
  const busy: typeof fetch = (url) => {
    calls.push(String(url));
    return Promise.resolve(new Response("{}", { status: 503, headers: { "retry-after": "20" } }));
  };
  for (const given of [options, { ...options, fetch: busy }]) {
    const controller = new AbortController();
    const call = new Reverie(given).recall({ query: "x" }, { signal: controller.signal });
    controller.abort();
    await assert.rejects(call, { name: "AbortError" });
  }
  assert.equal(calls.length, 1);
});

test("a signal that lives on keeps nothing of calls that have ended", async () => {
  const { signal } = new AbortController();
  let listeners = 0;
  const add = signal.addEventListener.bind(signal), remove = signal.removeEventListener.bind(signal);
  signal.addEventListener = (...given: Parameters<typeof add>) => (listeners++, add(...given));
  signal.removeEventListener = (...given: Parameters<typeof remove>) => (listeners--, remove(...given));
  let tries = 0;
  const busy: typeof fetch = () =>
    Promise.resolve(tries++ ? Response.json({}) : new Response("{}", { status: 503, headers: { "retry-after": "0" } }));
  await new Reverie({ ...options, fetch: busy }).status({}, { signal });
  assert.deepEqual([tries, listeners], [2, 0]);
});

test("a request whose connection broke is sent again, with the same key", async () => {
  const keys: string[] = [];
  const flaky: typeof fetch = (url, request) => {
    keys.push((request!.headers as Record<string, string>)["Idempotency-Key"]!);
    return keys.length === 1 ? Promise.reject(new TypeError("fetch failed")) : fetch(url, request);
  };
  await new Reverie({ ...options, fetch: flaky }).remember({ content: "once" });
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
});

test("a server counts as running unless its process has ended", async (t) => {
  const state = (process.env["XDG_STATE_HOME"] = await mkdtemp(join(tmpdir(), "state-")));
  const folder = join(state, "reverie", "servers");
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "one"), JSON.stringify({ url: "http://127.0.0.1:9", token: "rv_x", pid: 1 }));
  const failing = (code: string) => () => { throw Object.assign(new Error(code), { code }) };
  const kill = t.mock.method(process, "kill", failing("ERR_NOT_CAPABLE"));
  assert.deepEqual(await localServer(), { url: "http://127.0.0.1:9", token: "rv_x", isLocal: true });
  kill.mock.mockImplementation(failing("ESRCH"));
  await assert.rejects(localServer(), /no server runs/);
});

test("a role that does not exist is found by the compiler", () => {
  // @ts-expect-error: "nobody" is no role
  () => memory.ingest({ session: "s", messages: [{ role: "nobody", content: "x" }] });
  const content = [{ type: "text", text: "x" }];
  () => memory.ingest({ session: "s", messages: [{ role: "user", content, visibility: "shared" }] });
  // @ts-expect-error: a query is required
  () => memory.recall({});
});
