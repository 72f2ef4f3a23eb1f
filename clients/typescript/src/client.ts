// The client of Reverie for Node 20 and newer, Deno, Bun and browsers: `fetch`, and nothing else.
//
//     const memory = new Reverie({ agent: "ana" });
//     await memory.ingest({ session: "chat-42", messages: [{ role: "user", content: "I moved to Lisbon." }] });
//     const found = await memory.recall({ query: "where does she live?" });
//
// Its methods have the names of the Python client, by subject: `memory.facts.set({ ... })`. Each takes the arguments
// of its call as one object and resolves to the response as the server sends it.

import { type Calls, type MessageInput, type Problem, routes, subjects } from "./generated.js";

export type * from "./generated.js";

export interface Options {
  /** Who remembers. Default: the one agent that the token is for, or "default" for the token of `localServer`. */
  agent?: string;
  workspace?: string;
  /** The end user that all calls are limited to. */
  user?: string;
  /** Default: http://127.0.0.1:7437. */
  url?: string;
  token?: string;
  /** Set by `localServer`: its token is for all agents. */
  isLocal?: boolean;
  /** How long a call may take, with the server's own waiting on top. Default: 30. */
  timeoutSeconds?: number;
  fetch?: typeof fetch;
}

/** What the server refused or could not do. `type` is stable; `field` names the argument at fault. */
export class ReverieError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly type: string = "",
    readonly field: string = "",
  ) {
    super(message);
    this.name = "ReverieError";
  }
}

/** How one call is made. `signal` cancels it, which rejects with the signal's reason; the server may still do it. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** A message as a caller writes it; only the role is required. */
export type NewMessage = MessageInput;

type Args<N extends keyof Calls> = Calls[N]["args"];
type Method<N extends keyof Calls> = {} extends Args<N>
  ? (args?: Args<N>, options?: CallOptions) => Promise<Calls[N]["result"]>
  : (args: Args<N>, options?: CallOptions) => Promise<Calls[N]["result"]>;
type Methods<T> = { readonly [K in keyof T]: T[K] extends keyof Calls ? Method<T[K]> : Methods<T[K]> };

export interface Reverie extends Methods<typeof subjects> {}
export class Reverie {
  readonly #url: string;
  readonly #headers: Record<string, string> = {};
  readonly #seconds: number;
  readonly #fetch: typeof fetch;

  constructor(options: Options = {}) {
    this.#url = (options.url ?? "http://127.0.0.1:7437").replace(/\/+$/, "");
    this.#seconds = options.timeoutSeconds ?? 30;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
    // A token that names its agent must not be contradicted by a default.
    const agent = options.agent ?? (options.token?.startsWith("rv_") && !options.isLocal ? undefined : "default");
    if (agent !== undefined) this.#headers["X-Reverie-Agent"] = encodeURIComponent(agent);
    if (options.workspace) this.#headers["X-Reverie-Workspace"] = options.workspace;
    if (options.user) this.#headers["X-Reverie-User"] = encodeURIComponent(options.user);
    if (options.token) this.#headers["Authorization"] = `Bearer ${options.token}`;
    Object.assign(this, this.#methods(subjects));
  }

  #methods(names: object): Record<string, unknown> {
    return Object.fromEntries(
      Object.entries(names).map(([name, operation]) => [
        name,
        typeof operation === "string"
          ? (args?: object, options?: CallOptions) => this.call(operation as keyof Calls, (args ?? {}) as never, options)
          : this.#methods(operation),
      ]),
    );
  }

  /** Send a call by the name of its operation. Rejects with `ReverieError`. */
  async call<N extends keyof Calls>(name: N, args: Args<N>, options: CallOptions = {}): Promise<Calls[N]["result"]> {
    const [method, template] = routes[name];
    if (typeof args !== "object") throw new ReverieError(`${name} takes its arguments as one object`, 0);
    const rest: Record<string, unknown> = { ...args };
    const path = template.replace(/\{(\w+)\}/g, (_, field: string) => {
      const value = String(rest[field] ?? "");
      if (value === "") throw new ReverieError(`${name}: ${field} is required`, 0, "", field);
      // fetch takes these for the folder itself and the one above, also when they are escaped: another path.
      if (value === "." || value === "..") {
        throw new ReverieError(`${name}: ${field} is '${value}', which no URL can have: use another client`, 0, "", field);
      }
      delete rest[field];
      return encodeURIComponent(value);
    });
    const headers: Record<string, string> = { ...this.#headers };
    const request: RequestInit = { method, headers };
    const url = new URL(this.#url + path);
    if (method === "GET" || method === "DELETE") {
      for (const [field, value] of Object.entries(rest)) {
        for (const one of Array.isArray(value) ? value : [value]) {
          if (one !== undefined && one !== null) url.searchParams.append(field, String(one));
        }
      }
    } else {
      headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(rest);
    }
    // The same for each repetition of this request: the server carries it out once.
    // Not randomUUID, which a page has over HTTPS alone.
    if (method !== "GET") headers["Idempotency-Key"] = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const waits = "wait" in rest ? Number(rest["timeout_seconds"] ?? 30) : 0;
    return this.#answer(await this.#send(url, request, (this.#seconds + waits) * 1000, options.signal));
  }

  /** Send a request, once more after a broken connection, and after the time that a busy server names. */
  async #send(url: URL, request: RequestInit, milliseconds: number, given?: AbortSignal): Promise<Response> {
    const deadline = Date.now() + milliseconds;
    for (let broken = 0; ; ) {
      let response: Response;
      try {
        const timeout = AbortSignal.timeout(Math.max(1, deadline - Date.now()));
        const signal = given ? AbortSignal.any([given, timeout]) : timeout;
        response = await this.#fetch(url, { ...request, signal });
      } catch (error) {
        given?.throwIfAborted();
        if (error instanceof TypeError && broken++ === 0) continue;
        const cause = (error as { cause?: Error }).cause?.message ?? (error as Error).message;
        const hint = "document" in globalThis ? ", and is the origin of this page among its allowed_origins" : "";
        throw new ReverieError(`the server at ${this.#url} does not answer (${cause}): is it running${hint}?`, 0);
      }
      const after = Number(response.headers.get("retry-after") ?? NaN);
      if (![429, 503].includes(response.status) || !(Date.now() + after * 1000 < deadline)) return response;
      await response.body?.cancel();
      given?.throwIfAborted();
      await new Promise<void>((resolve, reject) => {
        const cancel = () => (clearTimeout(timer), reject(given!.reason));
        const go = () => (given?.removeEventListener("abort", cancel), resolve());
        const timer = setTimeout(go, Math.max(100, after * 1000));
        given?.addEventListener("abort", cancel, { once: true });
      });
    }
  }

  async #answer(response: Response): Promise<never> {
    if (response.ok) return (await response.json()) as never;
    const problem = (await response.json().catch(() => ({}))) as Partial<Problem>;
    const text = problem.detail ?? `${this.#url} answered ${response.status}: is it a Reverie server?`;
    throw new ReverieError(text, response.status, problem.type ?? "", problem.field ?? "");
  }
}
