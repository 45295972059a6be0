// The table of locks. The row of a lock stays the same element while the lock is shown, and so the
// focus stays.
"use strict";

let rows = new Map();

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
  $("empty").textContent = query.filter ? "No lock that this proxy knows matches the filter. To find a lock that another program holds by SETNX, enter its whole name." : list.complete ? "No lock is held." : "The proxy looks for locks…";
  setText($("count"), counted(list));
  $("trouble").hidden = !list.error;
  setText($("trouble"), list.error ? "The proxy could not look for locks in Redis. The page shows the locks that the proxy knows by itself. " + list.error : "");
}

function counted(list) {
  const n = list.locks.length, parts = [];
  if (n < list.matching) parts.push(`${n} of ${list.matching.toLocaleString()} locks`);
  else parts.push(`${n} ${n === 1 ? "lock" : "locks"}`);
  if (list.matching < list.total) parts.push(`of ${list.total.toLocaleString()} held`);
  if (list.full) parts.push("(more locks than can be followed)");
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
  const why = document.createElement("span");
  why.className = "note";
  name.className = "link";
  tag.className = "tag";
  cells.key.append(name, " ", tag);
  const bar = document.createElement("div"), fill = document.createElement("div"), left = document.createElement("span");
  bar.className = "bar";
  bar.setAttribute("role", "meter");
  bar.setAttribute("aria-label", "remaining");
  bar.setAttribute("aria-valuemin", "0");
  left.className = "left";
  bar.append(fill);
  cells.remaining.append(bar, left);
  const row = { tr, cells, name, tag, bar, fill, left, why, button: null, lock: null };
  const open = () => { if (row.lock.id !== undefined) location.hash = `lock/${row.lock.db}/${row.lock.id}`; };
  tr.addEventListener("click", (e) => { // a click anywhere in the row, unless it selects a text
    if (e.target.closest("button") === name || !e.target.closest("button") && getSelection().isCollapsed) open();
  });
  return row;
}

// byWhat names the program that holds a lock without LOCK.
function byWhat(lock) {
  const kinds = { timestamp: "by SETNX", other: "by another library" };
  return lock.library ? "by " + lock.library : kinds[lock.kind] || lock.kind;
}

// whyNot says why a lock has no button to release it.
function whyNot(lock) {
  if (lock.free) return "";
  if (lock.id === undefined) return "the name is too long for a request";
  return lock.kind === "other" ? "not taken by LOCK: DEL frees it" : lock.kind === "timestamp" ? "not taken by LOCK: DEL or UNLOCK FORCE frees it" : "";
}

// waitersOf is the number of waiters at this proxy with the longest wait, or says that other proxies
// have waiters.
function waitersOf(lock) {
  if (lock.waiters) return `${lock.waiters} · ${span(lock.oldest_wait_ms)}`;
  return lock.waiters_elsewhere ? "elsewhere" : "0";
}

function update(row, lock) {
  const { cells } = row;
  row.lock = lock;
  setText(row.name, lock.key || "(empty)");
  row.name.classList.toggle("empty", !lock.key);
  row.tr.classList.toggle("opens", lock.id !== undefined);
  const tags = [];
  if (lock.free) tags.push("between two holders");
  else if (lock.kind !== "lockproxy") tags.push(byWhat(lock));
  if (lock.makes) tags.push("makes " + lock.makes);
  if (lock.session) tags.push("session");
  if (lock.shared) tags.push(lock.holders === 1 ? "shared" : `${lock.holders} holders`);
  if (lock.db) tags.push("db " + lock.db);
  setText(row.tag, tags.join(" · "));
  row.tag.hidden = !tags.length;
  const owner = lock.owner || lock.name;
  setText(cells.owner, shorten(owner) + quoted(lock.note));
  cells.owner.title = owner.length > 40 || lock.note.length > 40 ? `${owner} ${lock.note}` : "";
  setText(cells.client, lock.client);
  setText(cells.held, lock.held_ms < 0 ? "–" : span(lock.held_ms));
  setText(row.left, lock.free ? "–" : span(lock.remaining_ms));
  const part = Math.max(0, Math.min(1, lock.remaining_ms / (lock.full_ms || 1)));
  row.fill.style.width = (100 * part).toFixed(1) + "%";
  row.bar.className = "bar" + (part < .1 ? " end" : part < .3 ? " low" : "");
  row.bar.setAttribute("aria-valuemax", Math.round(lock.full_ms / 1000));
  row.bar.setAttribute("aria-valuenow", Math.round(lock.remaining_ms / 1000));
  row.bar.setAttribute("aria-valuetext", `${span(lock.remaining_ms)} of ${span(lock.full_ms)}`);
  setText(cells.waiters, waitersOf(lock));
  cells.waiters.classList.toggle("waits", lock.waiters + lock.waiters_elsewhere > 0);
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
  const reason = session.logged_in && !may ? whyNot(lock) : "";
  setText(row.why, reason);
  if (reason && !row.why.isConnected) cells.actions.append(row.why);
  else if (!reason) row.why.remove();
  if (row.button) row.button.setAttribute("aria-label", "Release " + lock.key);
}
