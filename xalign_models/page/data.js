// What the page holds, decoded: the board at once, scores by language when they are first asked for.
"use strict";
const { html, render, useState, useEffect, useMemo, useRef, plot, dot, link, ruleX, line, text, scale, unzlibSync } = vendor;
const inflate = (name) => unzlibSync(Uint8Array.from(atob(document.getElementById(name).textContent), (letter) => letter.charCodeAt(0)));
const DATA = JSON.parse(new TextDecoder().decode(inflate("data")));
const MISSING = -32768;

const cellOf = (row, column) => DATA.cells[row][column];
const labelOf = (row) => DATA.rows[row].label;
const system = (row) => row.label.split(" (")[0];
const rowName = (row) => DATA.rows[row].label + (DATA.rows[row].apart ? "" : ` · ${DATA.rows[row].group}`);
// Whether a cell's difference is a gain or a loss beyond chance in the languages scored.
const isSure = (cell) => ["", "°"].includes(cell.mark ?? "") && cell.difference !== 0;
const mean = (list) => list.reduce((sum, value) => sum + value, 0) / list.length;
const points = (value) => (value > 0 ? "+" : value < 0 ? "\u2212" : "±") + Math.abs(value).toFixed(1);
const percent = (value) => (value == null ? "–" : value.toFixed(1).replace("-", "\u2212"));
const humps = (name) => name.replace(/([a-z0-9]|[A-Z]{2})(?=[A-Z][a-z])/g, "$1\u200b");
const unique = (list) => [...new Set(list)].sort();

// Numbers that were packed into an element, 16-bit integers; each is unpacked once, when it is first asked for.
const unpacked = new Map();
function unpack(name) {
  if (!unpacked.has(name)) {
    const bytes = inflate(name),
      half = bytes.length / 2,
      numbers = new Int16Array(half);
    for (let i = 0; i < half; i++) numbers[i] = bytes[i] | (bytes[half + i] << 8);
    unpacked.set(name, numbers);
  }
  return unpacked.get(name);
}
// The score in percent of the i-th row and j-th label (or pair) of a block; null where there is none.
const valueOf = (block, i, j) => {
  const width = block.kind === "pairs" ? block.labels.length ** 2 : block.labels.length;
  const value = unpack(block.name)[i * width + j];
  return value === MISSING ? null : value / 10;
};
const blocksOf = (task, kind) => DATA.blocks.filter((block) => block.task === task && block.kind === kind);

const baselineOf = (row) => DATA.rows[row].base;
// The row chosen by a form among some, else the first aligned one.
const chosenRow = (state, rows) => rows.find((row) => String(row) === state.model) ?? rows.find((row) => row !== baselineOf(row)) ?? rows[0];
// A row's mean over a task's subsets in one language; null where it has none. Of the kind "plain": its unaligned
// backbone's mean over the same subsets.
function inLanguage(row, task, label, heading, kind = "languages") {
  const found = [];
  for (const block of blocksOf(task, kind)) {
    const i = block.rows.indexOf(row);
    if (i < 0 || (heading && block.heading !== heading)) continue;
    block.labels.forEach((one, j) => {
      const value = one === label || block.spoken[j].includes(label) ? valueOf(block, i, j) : null;
      if (value !== null) found.push(value);
    });
  }
  return found.length ? mean(found) : null;
}
// Where the unaligned backbone's scores for a comparison with a row are: a row of the blocks of a kind.
function plainOf(row, task) {
  if (blocksOf(task, "plain").some((block) => block.rows.includes(row))) return [row, "plain"];
  const base = baselineOf(row);
  return base < 0 || base === row ? null : [base, "languages"];
}
const named = (label) => DATA.labels[label];
const languageName = (label) => named(label)[1] || named(label)[0];
const byName = (labels) => [...labels].sort((a, b) => languageName(a).localeCompare(languageName(b)));

// View, task, filters and order live in the address, so that a link shows what its sender saw, and each choice, but
// not each letter typed, is a step back.
function useAddress(initial) {
  const read = () => ({ ...initial, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) });
  const [state, setState] = useState(read);
  useEffect(() => {
    const listen = () => setState(read());
    addEventListener("hashchange", listen);
    return () => removeEventListener("hashchange", listen);
  }, []);
  const change = (fields, typed) => {
    const next = { ...state, ...fields };
    const kept = Object.entries(next).filter(([key, value]) => value !== initial[key]);
    history[typed ? "replaceState" : "pushState"](null, "", "#" + new URLSearchParams(kept));
    setState(next);
  };
  return [state, change];
}
