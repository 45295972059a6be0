// Texts for people. The name of a lock, an owner or a client becomes text, never markup.
"use strict";

const $ = (id) => document.getElementById(id);

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

function note(text) {
  const e = document.createElement("span");
  e.className = "note";
  e.textContent = text;
  return e;
}

// shorten cuts a name for a list; the dialog shows the whole name.
function shorten(name, most = 40) {
  return name.length > most ? name.slice(0, most - 3) + "…" : name;
}

// quoted is a holder's note behind its name, if there is one.
function quoted(note) {
  return note ? ` “${shorten(note)}”` : "";
}

// who names a client: the name of its owner, or else of its connection, and its address.
function who(e) {
  return [e.owner || e.name, e.client].filter(Boolean).join(" at ");
}

function lasted(e) {
  if (e.event === "deadlock") return e.cycle;
  if (e.event === "acquired") return e.wait_ms ? `waited ${span(e.wait_ms)}` : "";
  return e.event === "gave up" ? `after ${span(e.wait_ms)}` : `held for ${span(e.hold_ms)}`;
}
