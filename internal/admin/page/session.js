// The login, and releases by operators.
"use strict";

let session = { can_login: false, logged_in: false };

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

// releaseText says what a release does to the holder, and who gets the lock.
function releaseText(lock) {
  const told = lock.session
    ? "The holder of this session lock is told at once: its connection ends. The holder itself must stop its work."
    : "The holder is not told, and goes on working. It notices the release when it unlocks, renews or writes with a fence.";
  if (lock.holders > 1) return `${told} The other ${lock.holders - 1} holders keep the lock.`;
  return `${told} ${lock.waiters + lock.waiters_elsewhere ? "The client that has waited longest gets the lock at once." : "Other clients can take the lock at once."}`;
}

function askRelease(lock) {
  releasing = lock;
  setText($("release-key"), lock.key);
  setText($("release-owner"), (lock.owner || lock.name || "–") + quoted(lock.note));
  setText($("release-client"), lock.client);
  setText($("release-token"), String(lock.token));
  setText($("release-held"), lock.held_ms < 0 ? "–" : span(lock.held_ms));
  setText($("release-waiting"), waitersOf(lock));
  setText($("release-text"), releaseText(lock));
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
