// Brings the parts of a page that are marked data-live up to date: the page is asked for again
// and those parts are replaced. Never while the page is hidden, nor under the reader's cursor.
"use strict";
const INTERVAL_MS = 3000;

async function refresh() {
  const parts = document.querySelectorAll("[data-live][id]");
  if (document.hidden || parts.length === 0) return;
  const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of parts) {
    const next = fresh.getElementById(part.id);
    const busy = part.contains(document.activeElement) || String(getSelection()) !== "";
    if (next && !busy && part.innerHTML !== next.innerHTML) part.innerHTML = next.innerHTML;
  }
}

async function go() {
  try {
    await refresh();
  } catch {
    // The broker is away for a moment: the page stays as it was.
  }
  setTimeout(go, INTERVAL_MS);
}

setTimeout(go, INTERVAL_MS);
