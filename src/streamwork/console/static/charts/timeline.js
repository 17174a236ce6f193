// The timeline of epochs: one bar each, stacked by phase; abandoned and failed ones are marked. A bar links to its epoch.
// One bar is in the tab order; the arrow keys, Home and End move along the bars.

import { html, useEffect, useRef, useState } from "../lib/htm-preact.js";
import { count, duration } from "../core/format.js";
import { linear, ticks, useWidth } from "./scale.js";

export const PHASES = ["plan", "compute", "prepare", "commit", "complete", "prune"];
const HEIGHT = 190;
const LEFT = 54;
const TOP = 10;
const BOTTOM = 30;
const SLOT = 13;

export const total = (row) => PHASES.reduce((sum, phase) => sum + (row.seconds?.[phase] ?? 0), 0);
const broken = (row) => row.outcome === "abandoned" || row.outcome === "failed";

/** What a bar says to who cannot see it. */
export const said = (row) =>
  `Epoch ${row.epoch}, ${row.outcome}, ${duration(total(row))}${row.events ? `, ${count(row.events)} events` : ""}`;

/** `rows`: newest first, as the server gives them. `to(epoch)` is the address of an epoch. */
export function Timeline({ rows, selected, to, label }) {
  const [box, width] = useWidth(900);
  const [focus, setFocus] = useState(null);
  const links = useRef(new Map());
  const moved = useRef(false);
  const room = Math.max(8, Math.floor((width - LEFT) / SLOT));
  const shown = pick(rows, selected, room);
  const current =
    shown.find((row) => row.epoch === focus) ?? shown.find((row) => row.epoch === selected) ?? shown.at(-1);
  useEffect(() => {
    if (moved.current) links.current.get(current?.epoch)?.focus();
    moved.current = false;
  });
  if (!shown.length) return html`<p class="empty">No epoch yet.</p>`;
  const steps = ticks(Math.max(...shown.map(total), 0.001), 3);
  const y = linear(0, steps.at(-1), HEIGHT - BOTTOM, TOP);
  const slot = Math.min(22, (width - LEFT) / shown.length);
  const move = (event) => {
    const at = shown.indexOf(current);
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: shown.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    moved.current = true;
    setFocus(shown[Math.max(0, Math.min(shown.length - 1, next))].epoch);
  };
  return html`<div class="plot" ref=${box}>
    <${Legend} rows=${shown} />
    <svg class="timeline" width=${width} height=${HEIGHT} role="group" aria-label=${label} onKeyDown=${move}>
      <defs>
        <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="6" height="6" class="hatch-ground"/><rect width="2" height="6" class="hatch-line"/>
        </pattern>
      </defs>
      <g aria-hidden="true">${steps.map(
        (step) => html`<g key=${step}>
          <line class="rule" x1=${LEFT} x2=${width} y1=${y(step)} y2=${y(step)} />
          <text class="tick" x=${LEFT - 8} y=${y(step) + 4} text-anchor="end">${duration(step)}</text>
        </g>`,
      )}</g>
      ${shown.map((row, at) => {
        const x = LEFT + at * slot;
        return html`<a key=${row.epoch} href=${to(row.epoch)} class=${`bar-link ${row.epoch === selected ? "is-selected" : ""}`}
            aria-label=${said(row)} aria-current=${row.epoch === selected ? "true" : null}
            tabindex=${row === current ? "0" : "-1"} ref=${(element) => keep(links.current, row.epoch, element)}
            onFocus=${() => setFocus(row.epoch)}>
          <title>${said(row)}${row.note ? `: ${row.note}` : ""}</title>
          <rect class="hit" x=${x} y=${TOP} width=${slot} height=${HEIGHT - TOP - 8} rx="3" />
          <${Bar} row=${row} x=${x + 1.5} width=${slot - 3} y=${y} />
        </a>`;
      })}
      <g aria-hidden="true">${numbered(shown, slot).map(
        ([row, at]) =>
          html`<text key=${row.epoch} class="tick" x=${LEFT + (at + 0.5) * slot} y=${HEIGHT - 2} text-anchor="middle">${row.epoch}</text>`,
      )}</g>
    </svg>
  </div>`;
}

function keep(links, epoch, element) {
  if (element) links.set(epoch, element);
  else links.delete(epoch);
}

/** The newest bars that fit; if a selected one is older, those around it. Oldest first. */
export function pick(rows, selected, room) {
  const at = rows.findIndex((row) => row.epoch === selected);
  const from = at < room ? 0 : Math.min(rows.length - room, at - Math.floor(room / 2));
  return rows.slice(Math.max(0, from), Math.max(0, from) + room).reverse();
}

function numbered(shown, slot) {
  const every = Math.max(1, Math.ceil(48 / slot));
  return shown
    .map((row, at) => [row, at])
    .filter(([row, at]) => at === shown.length - 1 || (row.epoch % every === 0 && at < shown.length - every / 2));
}

function Bar({ row, x, width, y }) {
  const floor = y(0);
  let height = 0;
  const parts = PHASES.filter((phase) => row.seconds?.[phase] > 0).map((phase) => {
    const bottom = height;
    height += row.seconds[phase];
    return { phase, top: y(height), size: Math.max(0.75, y(bottom) - y(height)) };
  });
  const top = parts.length ? Math.min(y(height), floor - 2) : floor - 3;
  return html`<g class=${`bar-of ${row.outcome}`}>
    ${
      broken(row)
        ? html`<rect x=${x} width=${width} y=${Math.min(top, floor - 10)} height=${Math.max(10, floor - top)} class="broken" />`
        : parts.map(
            (one) =>
              html`<rect key=${one.phase} class=${`phase ${one.phase}`} x=${x} width=${width} y=${one.top} height=${one.size} />`,
          )
    }
    ${!broken(row) && !parts.length && html`<rect class="phase plan" x=${x} width=${width} y=${floor - 2} height="2" />`}
    ${row.outcome === "failed" && html`<path class="cross" d=${`M${x + width / 2 - 3} ${floor + 4}l6 6m0 -6l-6 6`} />`}
    ${row.outcome === "abandoned" && html`<path class="dash" d=${`M${x + width / 2 - 3.5} ${floor + 7}h7`} />`}
    ${row.outcome === "rolled-forward" && html`<path class="arrow" d=${`M${x + width / 2 - 3} ${floor + 10}l3 -5l3 5z`} />`}
  </g>`;
}

const MARKS = { failed: "failed ×", abandoned: "abandoned –", "rolled-forward": "rolled forward ▴" };

function Legend({ rows }) {
  const phases = PHASES.filter((phase) => rows.some((row) => row.seconds?.[phase] > 0));
  const marks = Object.keys(MARKS).filter((outcome) => rows.some((row) => row.outcome === outcome));
  return html`<ul class="legend" aria-label="Legend">
    ${phases.map((phase) => html`<li key=${phase}><span class=${`swatch ${phase}`} aria-hidden="true"></span>${phase}</li>`)}
    ${marks.map((one) => html`<li key=${one} class=${`mark ${one}`}><span class=${`swatch ${one}`} aria-hidden="true"></span>${MARKS[one]}</li>`)}
  </ul>`;
}
