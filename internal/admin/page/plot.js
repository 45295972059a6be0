// Plots of the last minutes, as SVG: a path, a scale, and the values at the pointer.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

// roundUp is the end of the scale for a largest value: 1, 2 or 5 times a power of ten.
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= value);
}

function brief(value) {
  if (value >= 1e6) return (value / 1e6).toFixed(1) + "M";
  if (value >= 1e4) return (value / 1e3).toFixed(0) + "k";
  if (value >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(value >= 10 ? 1 : 2);
}

// briefTime writes milliseconds as people say them.
function briefTime(ms) {
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : ms.toFixed(0)} ms`;
  if (ms < 120000) return `${ms < 10000 ? Number((ms / 1000).toFixed(1)) : (ms / 1000).toFixed(0)} s`;
  return `${(ms / 60000).toFixed(0)} min`;
}

const shortest = 60000;

function ago(ms) {
  return ms < 120000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60000)} min`;
}

// A Plot shows points, which have "at" (ms) and the fields that series names. It spans a minute, or
// more if the points do. write turns a value into a text.
class Plot {
  constructor(svg, name, series, write = brief) {
    Object.assign(this, { svg, name, series, write, points: [], pointer: null });
    svg.addEventListener("pointermove", (e) => { this.pointer = e.offsetX; this.draw(); });
    svg.addEventListener("pointerleave", () => { this.pointer = null; this.draw(); });
  }

  show(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const { svg, series, points, write } = this;
    const width = svg.clientWidth || 300, height = svg.clientHeight || 100;
    const left = 42, right = 4, top = 6, bottom = 16;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const end = points.length ? points[points.length - 1].at : 0;
    const span = points.length ? Math.max(shortest, end - points[0].at) : shortest, start = end - span;
    const most = Math.max(0, ...points.flatMap((p) => series.map((s) => p[s])));
    const scale = roundUp(most);
    const x = (at) => left + ((at - start) / span) * (width - left - right);
    const y = (value) => top + (1 - value / scale) * (height - top - bottom);
    for (const [value, anchor] of [[scale, "hanging"], [0, "auto"]]) {
      svg.append(element("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
      svg.append(element("text", { x: left - 5, y: y(value), "text-anchor": "end", "dominant-baseline": anchor }, write(value)));
    }
    svg.append(element("text", { x: left, y: height - 3 }, `−${ago(span)}`));
    series.forEach((field, i) => {
      const line = points.map((p, j) => `${j ? "L" : "M"}${x(p.at).toFixed(1)} ${y(p[field]).toFixed(1)}`).join("");
      if (!line) return;
      if (i === 0) svg.append(element("path", { class: "area", d: `${line}L${x(end)} ${y(0)}L${x(points[0].at)} ${y(0)}Z` }));
      svg.append(element("path", { class: "ab"[i], d: line }));
    });
    this.readOut(points, x, width, height, top, bottom);
    const now = points.length ? series.map((s) => write(points[points.length - 1][s])).join(" and ") : "no value yet";
    svg.setAttribute("aria-label", `${this.name}: now ${now}, most in the last ${ago(span)} ${write(most)}`);
  }

  // readOut shows the values at the pointer, or the last ones.
  readOut(shown, x, width, height, top, bottom) {
    if (!shown.length) return;
    let p = shown[shown.length - 1];
    if (this.pointer !== null) {
      p = shown.reduce((a, b) => (Math.abs(x(b.at) - this.pointer) < Math.abs(x(a.at) - this.pointer) ? b : a));
      this.svg.append(element("line", { class: "grid", x1: x(p.at), x2: x(p.at), y1: top, y2: height - bottom }));
    }
    const when = this.pointer === null ? "now" : new Date(p.at).toLocaleTimeString();
    const text = `${when}: ${this.series.map((s) => this.write(p[s])).join(" / ")}`;
    this.svg.append(element("text", { class: "now", x: width - 4, y: height - 3, "text-anchor": "end" }, text));
  }
}
