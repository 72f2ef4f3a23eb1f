// For programs that are not in a browser: where this user's own server runs, and its token.

import { readdir, readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";

/** Return url and token of this user's running server, to be passed to `Reverie`. Rejects if there is none, or several. */
export async function localServer(): Promise<{ url: string; token: string; isLocal: true }> {
  const state = process.env["XDG_STATE_HOME"] || join(homedir(), ".local", "state");
  const folder = join(state, "reverie", "servers");
  const names = await readdir(folder).catch(() => []);
  const found = (await Promise.all(names.map((name) => read(join(folder, name))))).filter((one) => one !== null);
  const only = found.find((one) => one.url === "http://127.0.0.1:7437") ?? (found.length === 1 ? found[0] : undefined);
  if (only) return { url: only.url, token: only.token, isLocal: true };
  const urls = found.map((one) => one.url).join(", ");
  throw new Error(urls ? `several servers run, name one by url: ${urls}` : "no server runs: start it with `reverie up`");
}

async function read(path: string): Promise<{ url: string; token: string; pid: number } | null> {
  try {
    const entry = JSON.parse(await readFile(path, "utf8"));
    return hasEnded(entry.pid) ? null : entry;
  } catch {
    return null;
  }
}

function hasEnded(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    // Any other error says that it may not be asked, as in Deno without --allow-run.
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}
