// The lists next to the table: the locks that cost most, and the events.
"use strict";

let seenLast = null, topMinutes = 5;

function showSeen(seen) {
  seenLast = seen;
  const list = topMinutes === 5 ? seen.last_5_minutes : seen.last_60_minutes;
  const most = Math.max(1, ...list.map((c) => c.wait_ms));
  lines($("top"), list, "No client has waited.", (li, cost) => {
    const bar = document.createElement("i");
    bar.className = "share";
    bar.style.width = (100 * cost.wait_ms / most).toFixed(1) + "%";
    const blamed = cost.blame.find((b) => b.holder !== "unknown"); // "unknown" can stand for several holders
    li.append(bar, lockLink(cost), note(` ${span(cost.wait_ms)} in ${cost.waits.toLocaleString()} ${cost.waits === 1 ? "wait" : "waits"}` +
      (blamed ? `, mostly behind ${shorten(blamed.holder)}` : "")));
  });
  lines($("feed"), seen.events, "Nothing notable has happened within the last hour.", (li, e) => {
    const what = document.createElement("b");
    what.className = e.event === "acquired" ? "" : e.event === "gave up" ? "warn" : "bad";
    what.textContent = e.event;
    li.append(note(new Date(e.at_ms).toLocaleTimeString() + " "), what, " ", lockLink(e), note(" " + [who({ owner: shorten(e.owner || e.name || ""), client: e.client }) + quoted(e.note), lasted(e)].filter(Boolean).join(", ")));
  });
}

function lines(list, items, none, fill) {
  if (list.contains(document.activeElement)) return; // a link in it would lose the focus
  list.replaceChildren(...(items.length ? items : [null]).map((item) => {
    const li = document.createElement("li");
    if (item) fill(li, item);
    else li.append(note(none));
    return li;
  }));
}

function lockLink(lock) {
  const a = document.createElement("a");
  a.textContent = shorten(lock.key, 60) + (lock.db ? ` (db ${lock.db})` : "");
  if (lock.id !== undefined) a.href = `#lock/${lock.db}/${lock.id}`;
  return a;
}

for (const minutes of [5, 60]) {
  $("top-" + minutes).addEventListener("click", () => {
    topMinutes = minutes;
    for (const m of [5, 60]) $("top-" + m).setAttribute("aria-pressed", m === minutes);
    if (seenLast) showSeen(seenLast);
  });
}
