// The dialog of one lock. It is open while the address names the lock.
"use strict";

let lockTimer;

async function showLock() {
  clearTimeout(lockTimer);
  const named = /^#lock\/(\d+)\/([\w-]*)$/.exec(location.hash);
  if (!named) { $("lock-dialog").close(); return; }
  try {
    const lock = await (await fetch(`api/lock?db=${named[1]}&id=${named[2]}`)).json();
    if (location.hash !== named[0]) return;
    if (!$("lock-dialog").open) $("lock-dialog").showModal();
    fillLock(lock);
  } catch { /* the header says that the proxy does not answer */ }
  lockTimer = setTimeout(showLock, 1000);
}

function fillLock(lock) {
  setText($("lock-title"), lock.key);
  const held = lock.holder, tags = [];
  if (lock.db) tags.push("db " + lock.db);
  if (held && held.kind !== "lockproxy") tags.push(byWhat(held));
  if (held && held.makes) tags.push("makes " + held.makes);
  if (held && held.session) tags.push("session");
  if (held && held.shared) tags.push(held.holders === 1 ? "shared" : `${held.holders} holders`);
  setText($("lock-tag"), tags.join(" · "));
  $("lock-tag").hidden = !tags.length;
  $("lock-facts").replaceChildren(...lockFacts(lock).map(([name, text]) => {
    const div = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name;
    dd.textContent = text;
    div.append(dt, dd);
    return div;
  }));
  const costs = [["5 min", lock.last_5_minutes], ["60 min", lock.last_60_minutes]].filter(([, cost]) => cost);
  $("lock-costs").hidden = !costs.length;
  $("lock-costs").tBodies[0].replaceChildren(...costs.map(([when, cost]) => costRow(when, cost)));
  drawTimeline($("lock-timeline"), lock);
  items($("lock-queue"), lock.waiters.map((w) => `${who(w)}: ${span(w.waited_ms)}, ${w.left_ms === null ? "waits forever" : "up to " + span(w.left_ms) + " more"}`)
    .concat(lock.others.map((id) => `the proxy ${id}, which has waiters`)));
  $("lock-trying").hidden = $("lock-trying-title").hidden = !lock.trying.length;
  items($("lock-trying"), lock.trying.map((t) => `${[t.name, t.client].filter(Boolean).join(" at ")}${t.library ? ` (${t.library})` : ""}: refused ${t.times} times in ${span(t.for_ms)}`));
  items($("lock-events"), lock.events.slice(0, 30).map((e) => [`${new Date(e.at_ms).toLocaleTimeString()} ${e.event}: ${who(e)}${quoted(e.note)}`, e.event === "seen" ? "" : lasted(e)].filter(Boolean).join(", ")));
}

function lockFacts(lock) {
  const held = lock.holder;
  if (!held) return [["Held by", lock.error || "nobody"]];
  const facts = [["Held by", who(held) || "a client that this proxy has not seen"]];
  if (held.note) facts.push(["Note", held.note]);
  if (held.held_ms >= 0) facts.push(["Since", `${new Date(lock.at_ms - held.held_ms).toLocaleTimeString()}, for ${span(held.held_ms)}`]);
  if (lock.through) facts.push(["Through", lock.through === proxyID ? "this proxy" : "the proxy " + lock.through]);
  facts.push(["Remaining", held.session ? "renewed, as a session lock" : span(held.remaining_ms)]);
  if (held.refused) facts.push(["Refused requests", `${held.refused.toLocaleString()} during this hold`]);
  if (held.token) facts.push(["Token", String(held.token)]);
  return facts;
}

function costRow(when, cost) {
  const tr = document.createElement("tr");
  const blame = cost.blame.slice(0, 3).map((b) => `${b.holder} ${span(b.wait_ms)}`).join(", ");
  const cells = [when, cost.acquired, cost.refused, cost.waits, span(cost.wait_ms), span(cost.longest_wait_ms), blame || "–"];
  cells.forEach((text, i) => {
    const td = document.createElement("td");
    td.textContent = text.toLocaleString();
    if (i > 0 && i < 6) td.className = "number";
    tr.append(td);
  });
  return tr;
}

function items(list, texts) {
  list.replaceChildren(...(texts.length ? texts : ["none"]).map((text) => {
    const li = document.createElement("li");
    li.textContent = text;
    return li;
  }));
}

// spansOf are the times in which clients had the lock or waited for it, the newest first.
function spansOf(lock) {
  const now = lock.at_ms, spans = [];
  const add = (client, kind, from, to, text) => spans.push({ who: who(client) || "unknown", kind, from, to, text });
  if (lock.holder && lock.holder.held_ms >= 0) add(lock.holder, "held", now - lock.holder.held_ms, now, "has the lock");
  for (const w of lock.waiters) add(w, "waited", now - w.waited_ms, now, "waits");
  for (const t of lock.trying) add({ owner: t.name, client: t.client }, "waited", now - t.for_ms, now, "tries");
  for (const e of lock.events) {
    if (e.event === "acquired") {
      if (e.wait_ms) add(e, "waited", e.at_ms - e.wait_ms, e.at_ms, "waited");
    } else if (e.event === "gave up") {
      add(e, "waited ended", e.at_ms - e.wait_ms, e.at_ms, "gave up");
    } else if (e.event !== "seen") {
      add(e, e.event === "released" ? "held" : "held ended", e.at_ms - e.hold_ms, e.at_ms, e.event);
    }
  }
  return spans;
}

const maxLanes = 10;

// drawTimeline has a lane for each of the clients that had the lock last, or wait for it.
function drawTimeline(svg, lock) {
  const spans = spansOf(lock), lanes = [...new Set(spans.map((s) => s.who))].slice(0, maxLanes);
  const shown = spans.filter((s) => lanes.includes(s.who));
  const now = lock.at_ms, start = Math.min(now - 1000, ...shown.map((s) => s.from));
  const width = svg.clientWidth || 600, left = Math.min(190, width * .35), lane = 20, height = Math.max(1, lanes.length) * lane + 18;
  const x = (at) => left + ((at - start) / (now - start)) * (width - left - 2);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = height + "px";
  svg.replaceChildren();
  lanes.forEach((name, i) => {
    const most = Math.floor(left / 6.6), short = name.length > most ? name.split(" at ")[0] : name;
    svg.append(element("line", { class: "grid", x1: left, x2: width, y1: (i + 1) * lane - .5, y2: (i + 1) * lane - .5 }));
    svg.append(element("text", { class: "now", x: 0, y: i * lane + 14 }, short.length > most ? short.slice(0, most - 1) + "…" : short));
  });
  for (const s of [...shown].reverse()) {
    const y = lanes.indexOf(s.who) * lane + (s.kind.startsWith("held") ? 3 : 7), tall = s.kind.startsWith("held") ? 13 : 5;
    const bar = element("rect", { class: "span " + s.kind, x: x(s.from).toFixed(1), y, width: Math.max(1.5, x(s.to) - x(s.from)).toFixed(1), height: tall, rx: 1.5 });
    bar.append(element("title", {}, `${s.who} ${s.text}: ${span(s.to - s.from)}, from ${new Date(s.from).toLocaleTimeString()}`));
    svg.append(bar);
  }
  if (!lanes.length) svg.append(element("text", { x: 0, y: 14 }, "This proxy has seen no holder and no waiter."));
  else {
    svg.append(element("text", { x: left, y: height - 3 }, `−${ago(now - start)}`));
    svg.append(element("text", { x: width - 2, y: height - 3, "text-anchor": "end" }, "now"));
  }
  svg.setAttribute("aria-label", `Holders and waiters of the last ${ago(now - start)}: ` + shown.slice(0, 6).map((s) => `${s.who} ${s.text} ${span(s.to - s.from)}`).join("; "));
}

window.addEventListener("hashchange", showLock);
$("lock-dialog").addEventListener("close", () => { if (location.hash) location.hash = ""; });
showLock();
