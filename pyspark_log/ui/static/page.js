"use strict";
// Themes, keys, a filter, and pages that renew themselves. Without this script all pages work, but for these.

const root = document.documentElement;
const THEME = "pylog-theme";

function kept() {
  try { return localStorage.getItem(THEME); } catch { return null; }
}
if (kept()) root.dataset.theme = kept();

function switchTheme() {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem(THEME, root.dataset.theme); } catch { /* it is not kept, then */ }
}

document.addEventListener("DOMContentLoaded", () => {
  const field = document.getElementById("filter") || document.getElementById("at");
  const filter = document.getElementById("filter");
  const help = document.getElementById("help");
  document.getElementById("theme").addEventListener("click", switchTheme);
  document.getElementById("keys").addEventListener("click", () => help.showModal());

  // ---- the filter hides rows at once; Enter asks the server, which has those of other pages, too
  function hideRows() {
    if (!filter) return;
    const wanted = filter.value.toLowerCase();
    for (const row of document.querySelectorAll("tr[data-name]")) {
      row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
    }
  }
  if (filter) filter.addEventListener("input", hideRows);

  // A field for an offset, a time or a key means that one is wanted.
  const by = document.getElementById("by");
  if (by) {
    let isOurs = by.value === "last";
    by.addEventListener("change", () => { isOurs = false; });
    document.getElementById("at").addEventListener("input", (event) => {
      const text = event.target.value.trim();
      if (isOurs) by.value = !text ? "last" : /^\d+$/.test(text) ? "offset" : /^\d{4}-\d\d-\d\d|^\d+\s*(ms|[smhdw])$/.test(text) ? "time" : "key";
    });
  }

  // ---- keys
  function rows() {
    return [...document.querySelectorAll("main a.row")].filter((link) => !link.closest("tr").hidden);
  }
  function move(step) {
    const links = rows();
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + step, 0), links.length - 1)];
    if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
  }
  function follow(selector) {
    const link = document.querySelector(selector);
    if (link) link.click();
  }
  const KEYS = {
    "/": () => field && (field.focus(), field.select()), "?": () => help.showModal(), t: switchTheme,
    j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    n: () => follow("main a[rel=next]"), p: () => follow("main a[rel=prev]"), u: () => follow("main a[rel=up]"),
    l: () => follow("#live"),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.target.closest("pre") && event.key.startsWith("Arrow")) return;
    if (event.key.startsWith("Arrow") && !rows().length) return;
    if (Object.hasOwn(KEYS, event.key)) { event.preventDefault(); KEYS[event.key](); }
  });

  // ---- copying: the text beside a button, or what an address gives. Browsers allow it on this machine, and with TLS.
  async function copy(button) {
    const beside = (button.closest("section") || button.parentNode).querySelector("pre");
    try {
      const text = button.dataset.copy ? await (await fetch(button.dataset.copy)).text() : beside.textContent;
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch { button.textContent = "Not copied"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }
  function showButtons(part) {
    if (!navigator.clipboard) return;
    for (const button of part.querySelectorAll("[data-copy], [data-copy-text]")) button.hidden = false;
  }
  showButtons(document);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-text]");
    if (button) copy(button);
  });

  // ---- renewing: the parts of the page that change are taken from the page as the server has it now
  const seconds = Number(document.body.dataset.refresh);
  const fresh = document.getElementById("fresh");
  let renewed = Date.now();

  const ARRIVING = 2500; // ms that a row is marked as new, as page.css has it
  const seen = new WeakMap(), arrived = new Map();

  function replace(part, newer) {
    if (seen.get(part) === newer.innerHTML) return;
    seen.set(part, newer.innerHTML);
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const known = part.hasAttribute("data-new") ? new Set([...part.querySelectorAll("tr[id]")].map((row) => row.id)) : null;
    part.replaceChildren(...newer.childNodes);
    showButtons(part);
    if (known) markNew(part, known);
    if (focused) {
      const again = [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }
  function markNew(part, known) {
    const now = Date.now();
    for (const [id, since] of arrived) if (now - since > ARRIVING) arrived.delete(id);
    for (const row of part.querySelectorAll("tr[id]")) {
      if (!known.has(row.id)) arrived.set(row.id, now);
      if (!arrived.has(row.id)) continue;
      row.classList.add("new");
      for (const cell of row.cells) cell.style.animationDelay = `${arrived.get(row.id) - now}ms`;
    }
  }
  async function renew() {
    if (!document.hidden && String(getSelection()) === "") {
      try {
        const answer = await fetch(location.href, { signal: AbortSignal.timeout(9000) });
        const newer = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of document.querySelectorAll("[data-live]")) {
          const other = newer.getElementById(part.id);
          if (other) replace(part, other);
        }
        hideRows();
        renewed = Date.now();
        fresh.textContent = answer.ok ? "" : `${answer.status} ${answer.statusText}`;
      } catch {
        fresh.textContent = `no answer for ${Math.round((Date.now() - renewed) / 1000)} s`;
      }
    }
    setTimeout(renew, 1000 * seconds);
  }
  if (seconds) setTimeout(renew, 1000 * seconds);
});
