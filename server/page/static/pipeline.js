// Keeps the figures of the pipeline page up to date. Without this file the page shows them as they were when it was loaded.
"use strict";

(() => {
  const figures = document.querySelector("[data-events]");
  const connection = document.querySelector("[data-connection]");
  if (!figures || !connection || !window.EventSource) return;
  const RETRY_MS = 3000;

  function say(text) {
    if (connection.textContent !== text) connection.textContent = text;
  }

  // The browser gives up after an answer that is no stream: a login, or an error of a proxy.
  async function recover() {
    say("Not connected: trying again");
    try {
      const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 403) {
        location.reload();
        return;
      }
    } catch {
      // The server is away; it is asked again.
    }
    setTimeout(connect, RETRY_MS);
  }

  function connect() {
    const source = new EventSource(figures.dataset.events);
    source.addEventListener("open", () => say("Live"));
    source.addEventListener("figures", (event) => {
      // A reader who has selected something or moves through a table keeps it.
      if (figures.contains(document.activeElement) || !document.getSelection().isCollapsed) return;
      figures.innerHTML = event.data;
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) recover();
      else say("Not connected: trying again");
    });
  }

  connect();
})();
