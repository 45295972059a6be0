// The live page. Everything that comes from a lock's name, owner or client is put in as text, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);

// ---- what is asked for: kept in the address, so that it can be shared and survives a reload

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
  if ($("filter").value !== query.filter) $("filter").value = query.filter;
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
  $("upstream").textContent = "the proxy doesn't answer; trying again";
  $("trouble").hidden = true; // it is about Redis, of which nothing is known now
  if (failed.readyState === EventSource.CLOSED) { // refused: the browser won't try again by itself
    failed.close();
    setTimeout(() => { if (failed === stream) listen(); }, 3000);
  }
}

let proxyID = ""; // as lock records name this proxy

function showState(s) {
  proxyID = s.id;
  $("upstream").className = "state " + (s.upstream_up && !s.draining ? "up" : "down");
  $("upstream").textContent = s.draining ? "shutting down" : s.upstream + (s.upstream_up ? "" : " is down");
  for (const name of ["clients", "waiters", "acquired", "expired", "lost", "forced", "deadlocks"]) $(name).textContent = s[name].toLocaleString();
  setText($("oldest"), s.waiters ? span(s.oldest_wait_ms) : "–");
  setText($("proxy"), s.proxy);
  $("proxy").title = `lockproxy ${s.version}, called ${s.id} in lock records`;
  if (s.proxy) document.title = `lockproxy ${s.proxy}`;
  showPeers(s.peers);
}

let peers = [];

// showPeers links the pages of other proxies, for what this one shows.
function showPeers(list) {
  peers = list;
  $("peers").hidden = !list.length;
  const links = list.map((peer) => {
    const a = document.createElement("a");
    a.href = peer.url + location.search + location.hash;
    a.textContent = peer.name;
    if (new URL(peer.url).host === location.host) a.setAttribute("aria-current", "page");
    return a;
  });
  $("peers").replaceChildren("Proxies: ", ...links);
}

const tenMinutes = 600000;
const plots = [
  new Plot($("plot-acquired"), "Acquisitions a second", ["acquired"]),
  new Plot($("plot-wait"), "Wait in ms, mean and longest", ["mean_ms", "max_ms"]),
  new Plot($("plot-waiters"), "Waiting clients", ["waiters"]),
];

function showHistory(more) {
  if (!more.length) return;
  lastPoint = more[more.length - 1].at;
  points = points.concat(more).filter((p) => p.at > lastPoint - tenMinutes);
  for (const plot of plots) plot.show(points);
}

// ---- the table: a row stays the same element as long as its lock is shown, so that the focus stays where it is

let rows = new Map(), session = { can_login: false, logged_in: false };

function showLocks(list) {
  const seen = new Map();
  let at = $("rows").firstElementChild;
  for (const lock of list.locks) {
    const name = `${lock.db} ${lock.id ?? lock.key}`;
    const row = rows.get(name) || newRow();
    update(row, lock);
    seen.set(name, row);
    if (row.tr === at) at = at.nextElementSibling;
    else $("rows").insertBefore(row.tr, at);
  }
  for (const [name, row] of rows) if (!seen.has(name)) row.tr.remove();
  rows = seen;
  $("empty").hidden = list.locks.length > 0;
  $("empty").textContent = query.filter ? "No lock that this proxy knows of matches. One that others hold by SETNX is found by its whole name." : list.complete ? "No lock is held." : "Looking for locks…";
  setText($("count"), counted(list));
  $("trouble").hidden = !list.error;
  setText($("trouble"), list.error ? "The locks could not be looked at; what is shown is what this proxy knows by itself. " + list.error : "");
}

function counted(list) {
  const n = list.locks.length, parts = [];
  if (n < list.matching) parts.push(`${n} of ${list.matching.toLocaleString()} locks`);
  else parts.push(`${n} ${n === 1 ? "lock" : "locks"}`);
  if (list.matching < list.total) parts.push(`of ${list.total.toLocaleString()} held`);
  if (list.full) parts.push("(there are more than can be followed)");
  if (!list.complete && !list.error) parts.push("(still looking)");
  return parts.join(" ");
}

function newRow() {
  const tr = document.createElement("tr"), cells = {};
  for (const [name, label] of [["key", "Key"], ["owner", "Owner"], ["client", "Client"], ["held", "Held for"], ["remaining", "Remaining"], ["waiters", "Waiters"], ["actions", ""]]) {
    const td = cells[name] = document.createElement("td");
    td.className = name + (name === "held" || name === "waiters" ? " number" : "");
    td.dataset.label = label;
    tr.append(td);
  }
  const name = document.createElement("button"), tag = document.createElement("span");
  name.type = "button";
  name.className = "link";
  tag.className = "tag";
  cells.key.append(name, tag);
  const bar = document.createElement("div"), fill = document.createElement("div"), left = document.createElement("span");
  bar.className = "bar";
  bar.setAttribute("role", "meter");
  bar.setAttribute("aria-label", "remaining");
  bar.setAttribute("aria-valuemin", "0");
  left.className = "left";
  bar.append(fill);
  cells.remaining.append(bar, left);
  const row = { tr, cells, name, tag, bar, fill, left, button: null, lock: null };
  name.addEventListener("click", () => { if (row.lock.id !== undefined) location.hash = `lock/${row.lock.db}/${row.lock.id}`; });
  return row;
}

// byWhat says what holds a lock that LOCK does not hold.
function byWhat(lock) {
  const kinds = { timestamp: "by SETNX", other: "by another library" };
  return lock.library ? "by " + lock.library : kinds[lock.kind] || lock.kind;
}

function update(row, lock) {
  const { cells } = row;
  row.lock = lock;
  setText(row.name, lock.key);
  const tags = [];
  if (lock.free) tags.push("between two holders");
  else if (lock.kind !== "lockproxy") tags.push(byWhat(lock));
  if (lock.session) tags.push("session");
  if (lock.shared) tags.push(lock.holders === 1 ? "shared" : `${lock.holders} holders`);
  if (lock.db) tags.push("db " + lock.db);
  setText(row.tag, tags.join(" · "));
  row.tag.hidden = !tags.length;
  setText(cells.owner, lock.owner);
  setText(cells.client, lock.client);
  setText(cells.held, lock.held_ms < 0 ? "–" : span(lock.held_ms));
  setText(row.left, lock.free ? "–" : span(lock.remaining_ms));
  const part = Math.max(0, Math.min(1, lock.remaining_ms / (lock.full_ms || 1)));
  row.fill.style.width = (100 * part).toFixed(1) + "%";
  row.bar.className = "bar" + (part < .1 ? " end" : part < .3 ? " low" : "");
  row.bar.setAttribute("aria-valuemax", Math.round(lock.full_ms / 1000));
  row.bar.setAttribute("aria-valuenow", Math.round(lock.remaining_ms / 1000));
  row.bar.setAttribute("aria-valuetext", `${span(lock.remaining_ms)} of ${span(lock.full_ms)}`);
  setText(cells.waiters, lock.waiters ? `${lock.waiters} · ${span(lock.oldest_wait_ms)}` : "0");
  cells.waiters.classList.toggle("waits", lock.waiters > 0);
  const may = session.logged_in && lock.id !== undefined && lock.token > 0;
  if (may && !row.button) {
    row.button = document.createElement("button");
    row.button.type = "button";
    row.button.textContent = "Release…";
    row.button.addEventListener("click", () => askRelease(row.lock));
    cells.actions.append(row.button);
  } else if (!may && row.button) {
    row.button.remove();
    row.button = null;
  }
  if (row.button) row.button.setAttribute("aria-label", "Release " + lock.key);
}

function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function span(ms) {
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.floor(s) + " s";
  if (s < 7200) return Math.floor(s / 60) + "m " + String(Math.floor(s % 60)).padStart(2, "0") + "s";
  return Math.floor(s / 3600) + "h " + String(Math.floor(s / 60) % 60).padStart(2, "0") + "m";
}

// ---- what was seen: the locks that cost most, and what happened

let seenLast = null, topMinutes = 5;

function showSeen(seen) {
  seenLast = seen;
  const list = topMinutes === 5 ? seen.last_5_minutes : seen.last_60_minutes;
  const most = Math.max(1, ...list.map((c) => c.wait_ms));
  lines($("top"), list, "Nobody has waited.", (li, cost) => {
    const bar = document.createElement("i");
    bar.className = "share";
    bar.style.width = (100 * cost.wait_ms / most).toFixed(1) + "%";
    const blamed = cost.blame[0];
    li.append(bar, lockLink(cost), note(` ${span(cost.wait_ms)} in ${cost.waits.toLocaleString()} ${cost.waits === 1 ? "wait" : "waits"}` +
      (blamed ? `, most for ${blamed.holder}` : "")));
  });
  lines($("feed"), seen.events, "Nothing notable within the last hour.", (li, e) => {
    const what = document.createElement("b");
    what.className = e.event === "acquired" ? "" : e.event === "gave up" ? "warn" : "bad";
    what.textContent = e.event;
    li.append(note(new Date(e.at_ms).toLocaleTimeString() + " "), what, " ", lockLink(e), note(" " + [who(e), lasted(e)].filter(Boolean).join(", ")));
  });
}

function lines(list, items, none, fill) {
  if (list.contains(document.activeElement)) return; // it would lose the focus
  list.replaceChildren(...(items.length ? items : [null]).map((item) => {
    const li = document.createElement("li");
    if (item) fill(li, item);
    else li.append(note(none));
    return li;
  }));
}

function note(text) {
  const e = document.createElement("span");
  e.className = "note";
  e.textContent = text;
  return e;
}

function lockLink(lock) {
  const a = document.createElement("a");
  a.textContent = lock.key + (lock.db ? ` (db ${lock.db})` : "");
  if (lock.id !== undefined) a.href = `#lock/${lock.db}/${lock.id}`;
  return a;
}

function who(e) {
  return [e.owner, e.client].filter(Boolean).join(" at ");
}

function lasted(e) {
  if (e.event === "deadlock") return e.cycle;
  if (e.event === "acquired") return e.wait_ms ? `waited ${span(e.wait_ms)}` : "";
  return e.event === "gave up" ? `after ${span(e.wait_ms)}` : `held for ${span(e.hold_ms)}`;
}

for (const minutes of [5, 60]) {
  $("top-" + minutes).addEventListener("click", () => {
    topMinutes = minutes;
    for (const m of [5, 60]) $("top-" + m).setAttribute("aria-pressed", m === minutes);
    if (seenLast) showSeen(seenLast);
  });
}

// ---- logging in and releasing

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (session.csrf) headers["X-CSRF-Token"] = session.csrf;
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), credentials: "same-origin" });
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
  return answer.json();
}

async function whoAmI() {
  session = await (await fetch("api/session", { credentials: "same-origin" })).json();
  showSession();
}

function showSession() {
  setText($("mode"), session.logged_in ? "logged in" : session.can_login ? "read-only until you log in" : "read-only");
  $("login").hidden = session.logged_in || !session.can_login;
  $("logout").hidden = !session.logged_in;
  for (const row of rows.values()) update(row, row.lock);
}

function fails(where, error) {
  where.hidden = !error;
  where.textContent = error ? error.message : "";
}

function toast(text) {
  $("said").textContent = text;
  $("said").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { $("said").hidden = true; }, 5000);
}

let releasing = null;

function askRelease(lock) {
  releasing = lock;
  setText($("release-key"), lock.key);
  setText($("release-owner"), lock.owner || "–");
  setText($("release-client"), lock.client);
  setText($("release-token"), String(lock.token));
  fails($("release-error"), null);
  $("release-dialog").showModal();
}

$("release-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  const { db, id, token, client, key } = releasing;
  try {
    const answer = await post("api/release", { db, id, token, holder: client });
    $("release-dialog").close();
    toast(answer.released ? `Released ${key}` : `${key}: ${answer.why}`);
    listen();
  } catch (error) {
    if (error.status === 401) { await whoAmI(); }
    fails($("release-error"), error);
  }
});

$("login-form").addEventListener("submit", async (e) => {
  e.preventDefault();
  try {
    session = await post("api/login", { token: $("token").value });
    $("login-dialog").close();
    showSession();
  } catch (error) {
    fails($("login-error"), error);
  }
  $("token").value = "";
});

$("login").addEventListener("click", () => { fails($("login-error"), null); $("login-dialog").showModal(); });
$("login-cancel").addEventListener("click", () => $("login-dialog").close());
$("release-cancel").addEventListener("click", () => $("release-dialog").close());
$("logout").addEventListener("click", async () => {
  session = await post("api/logout", {});
  showSession();
});

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
  $("pause").textContent = paused ? "Go on" : "Pause";
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
window.addEventListener("hashchange", () => showPeers(peers));
document.addEventListener("visibilitychange", () => { // nobody looks: nothing is scanned
  if (document.hidden && stream) { stream.close(); stream = null; } else if (!document.hidden) listen();
});

showQuery();
whoAmI().catch(() => {});
listen();
