// What the keyboard does, and times in the reader's own zone. Without this file every page still works.
"use strict";

(() => {
  const TYPING = "input, textarea, select, [contenteditable]";
  let sectionIsNext = false;

  function moveInList(step) {
    const entries = [...document.querySelectorAll("[data-item]")];
    if (!entries.length) return;
    const here = entries.findIndex((entry) => entry === document.activeElement);
    const next = here < 0 ? (step > 0 ? 0 : entries.length - 1) : here + step;
    const entry = entries[Math.min(entries.length - 1, Math.max(0, next))];
    entry.focus({ preventScroll: true });
    entry.scrollIntoView({ block: "nearest" });
  }

  function search() {
    const field = document.querySelector("[data-search]");
    if (field) {
      field.focus();
      field.select();
      return;
    }
    const home = document.querySelector(".brand");
    if (home) location.assign(`${home.href}#search`);
  }

  function goToSection(key) {
    const sections = [...document.querySelectorAll(".side nav a")];
    const section = sections.find((one) => one.dataset.key === key) ?? sections[Number(key) - 1];
    section?.click();
    return section !== undefined;
  }

  // In the entry of a list that has the focus, or on the page.
  const inEntry = (what) => document.activeElement?.closest("li")?.querySelector(what);

  function open(name) {
    const dialog = document.getElementById(name);
    if (dialog && !dialog.open) dialog.showModal();
  }

  const KEYS = {
    "/": search,
    "?": () => open("help"),
    j: () => moveInList(1),
    k: () => moveInList(-1),
    a: () => inEntry("[data-act=accept]")?.click(),
    x: () => inEntry("[data-act=forget]")?.click(),
    e: () => (inEntry("[data-edit]") ?? document.querySelector("[data-edit]"))?.click(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest?.(TYPING)) {
      if (event.key === "Escape") {
        event.preventDefault(); // else the browser empties a field of a search: its results would go
        event.target.blur();
      } else if (event.key === "Enter" && event.target.matches("[data-search]") && window.htmx) {
        event.preventDefault(); // else the whole page is loaded, and the focus is lost
        htmx.trigger(event.target, "search");
        if (matchMedia("(hover: none)").matches) event.target.blur(); // the keyboard covers what was found
      }
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const goes = sectionIsNext && goToSection(event.key);
    sectionIsNext = !goes && event.key === "g";
    if (goes) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  document.addEventListener("click", (event) => {
    const opener = event.target.closest?.("[data-opens]");
    if (opener) open(opener.dataset.opens);
    if (event.target.closest?.("[data-back]") && history.length > 1) {
      event.preventDefault(); // what was typed is still there; the address alone would give an empty form
      history.back();
    }
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-submits]")) event.target.form.requestSubmit();
  });

  // Without an answer the results would still be those of another search.
  document.addEventListener("htmx:error", (event) => {
    if (!event.target.matches?.("[data-search]")) return;
    const text = document.createElement("p");
    text.className = "failure";
    text.setAttribute("role", "alert");
    text.textContent = "The server does not answer. Press Enter to try again.";
    document.getElementById("results")?.replaceChildren(text);
  });

  // A search need not name the filters that are empty.
  document.addEventListener("formdata", (event) => {
    if (event.target.method !== "get") return;
    for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
  });

  // The server says times in UTC; the reader's own clock is added to what hovering shows, when somebody hovers: to do it
  // for a whole list would delay its first paint.
  document.addEventListener("pointerover", (event) => {
    const time = event.target.closest?.("time[title]:not([data-local])");
    if (!time) return;
    const format = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
    time.dataset.local = "";
    time.title = `${format.format(new Date(time.dateTime))}\n${time.title}`;
  });

  // The server writes days and times in this zone from the next page on.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `reverie-zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; samesite=strict`;

  // On a narrow screen the sections are one line.
  document.querySelector(".side nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // What an action led to is read out, and the next key goes on from there.
  const outcome = document.querySelector(".notice, .failure:not([role=alert])");
  if (outcome) outcome.tabIndex = -1;
  outcome?.focus({ preventScroll: true });

  if (location.hash === "#search") search();
})();
