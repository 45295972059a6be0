// The live page: its query, the stream of events that answers the query, and the header.
"use strict";

// ---- the query: the address keeps it, so that people can share it and a reload keeps it

const columns = ["key", "owner", "client", "held", "remaining", "waiters"];
const asked = new URLSearchParams(location.search);
const query = {
  filter: asked.get("filter") || "",
  sort: columns.includes(asked.get("sort")) ? asked.get("sort") : "waiters",
  desc: asked.has("sort") ? asked.get("desc") === "1" : true,
};

function parameters() {
  const p = new URLSearchParams();
  if (query.filter) p.set("filter", query.filter);
  p.set("sort", query.sort);
  if (query.desc) p.set("desc", "1");
  return p;
}

function asks(change) {
  Object.assign(query, change);
  const p = parameters();
  if (query.sort === "waiters" && query.desc) { p.delete("sort"); p.delete("desc"); } // the default
  history.replaceState(null, "", (p.size ? "?" + p : location.pathname) + location.hash);
  showQuery();
  listen();
}

function showQuery() {
  // A blank at the end stays: another word may follow.
  if ($("filter").value.trim() !== query.filter) $("filter").value = query.filter;
  $("sort").value = query.sort;
  $("direction").setAttribute("aria-pressed", query.desc);
  for (const button of document.querySelectorAll("th button")) {
    const th = button.parentElement;
    if (button.dataset.sort !== query.sort) th.removeAttribute("aria-sort");
    else th.setAttribute("aria-sort", query.desc ? "descending" : "ascending");
  }
}

// ---- the stream

let stream = null, paused = false, lastPoint = 0, points = [];

function listen() {
  if (stream) stream.close();
  stream = null;
  if (paused) return;
  const p = parameters();
  if (lastPoint) p.set("since", lastPoint);
  stream = new EventSource("events?" + p);
  stream.addEventListener("state", (e) => showState(JSON.parse(e.data)));
  stream.addEventListener("locks", (e) => showLocks(JSON.parse(e.data)));
  stream.addEventListener("seen", (e) => showSeen(JSON.parse(e.data)));
  stream.addEventListener("history", (e) => showHistory(JSON.parse(e.data) || []));
  stream.onerror = () => disconnected(stream);
}

function disconnected(failed) {
  if (failed !== stream) return;
  $("upstream").className = "state down";
  $("upstream").textContent = "the proxy does not answer; the page tries again";
  $("trouble").hidden = true; // a trouble is about Redis, of which nothing is known now
  if (failed.readyState === EventSource.CLOSED) { // the proxy has refused: the browser does not try again by itself
    failed.close();
    setTimeout(() => { if (failed === stream) listen(); }, 3000);
  }
}

let proxyID = ""; // the name of this proxy in lock records

function showState(s) {
  proxyID = s.id;
  $("upstream").className = "state " + (s.upstream_up && !s.draining ? "up" : "down");
  $("upstream").textContent = s.draining ? "shutting down" : s.upstream + (s.upstream_up ? "" : " is down");
  for (const name of ["clients", "waiters", "acquired", "expired", "lost", "forced", "deadlocks"]) $(name).textContent = s[name].toLocaleString();
  setText($("oldest"), s.waiters ? span(s.oldest_wait_ms) : "–");
  setText($("proxy"), s.proxy);
  $("proxy").title = `lockproxy ${s.version}, named ${s.id} in lock records`;
  if (s.proxy) document.title = `lockproxy ${s.proxy}`;
  pages = s.pages;
  showPages();
}

let pages = [], pagesShown = "";

// showPages links the pages of the proxies in front of the same Redis, with the query of this page.
// Anybody who reaches Redis can announce a page, so a link is text, and leads to http or https only.
function showPages() {
  const suffix = location.search + location.hash, now = JSON.stringify([pages, suffix]);
  if (now === pagesShown) return; // a link that stays keeps the focus
  pagesShown = now;
  $("pages").hidden = pages.every((page) => page.this);
  $("pages").replaceChildren("Proxies: ", ...pages.map((page) => {
    const a = document.createElement("a");
    if (/^https?:/.test(page.url)) a.href = page.url + suffix;
    a.rel = "noopener noreferrer";
    a.textContent = page.name;
    if (page.this) a.setAttribute("aria-current", "page");
    return a;
  }));
}

const tenMinutes = 600000;
const plots = [
  new Plot($("plot-acquired"), "Acquisitions a second", ["acquired"]),
  new Plot($("plot-wait"), "Wait, mean and longest", ["mean_ms", "max_ms"], briefTime),
  new Plot($("plot-waiters"), "Waiting clients", ["waiters"]),
];

function showHistory(more) {
  if (!more.length) return;
  lastPoint = more[more.length - 1].at;
  points = points.filter((p) => p.at < more[0].at && p.at > lastPoint - tenMinutes).concat(more); // a new stream repeats some points
  for (const plot of plots) plot.show(points);
}

// ---- tools

let typing;
$("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => asks({ filter: $("filter").value.trim() }), 150);
});
$("tools").addEventListener("submit", (e) => { e.preventDefault(); clearTimeout(typing); asks({ filter: $("filter").value.trim() }); });
$("sort").addEventListener("change", () => asks({ sort: $("sort").value }));
$("direction").addEventListener("click", () => asks({ desc: !query.desc }));
for (const button of document.querySelectorAll("th button")) {
  const sort = button.dataset.sort;
  button.addEventListener("click", () => asks({ sort, desc: query.sort === sort ? !query.desc : sort === "waiters" || sort === "held" }));
}
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
  $("pause").textContent = paused ? "Resume" : "Pause";
  listen();
});
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || document.querySelector("dialog[open]")) return;
  if (e.key === "/" && document.activeElement !== $("filter")) {
    e.preventDefault();
    $("filter").focus();
  } else if (e.key === "Escape" && document.activeElement === $("filter")) {
    asks({ filter: "" });
  }
});
window.addEventListener("resize", () => { for (const plot of plots) plot.draw(); });
window.addEventListener("hashchange", showPages);
document.addEventListener("visibilitychange", () => { // for a page that nobody sees the proxy scans nothing
  if (document.hidden && stream) { stream.close(); stream = null; } else if (!document.hidden) listen();
});

showQuery();
whoAmI().catch(() => {});
listen();
