// A chart of figures over time: one line per series, a readout under the pointer. Its table twin has the same points.

import { html, useState } from "../lib/htm-preact.js";
import { clock, known } from "../core/format.js";
import { linear, ticks, timeTicks, useWidth } from "./scale.js";

const HEIGHT = 170;
const LEFT = 58;
const TOP = 10;
const BOTTOM = 26;

/** `series`: [{name, points: [[seconds, value], …]}], `as` makes text of a value, `ceiling` is the least top of the scale. */
export function Lines({ series, as, label, ceiling = 0 }) {
  const [box, width] = useWidth(560);
  const [at, setAt] = useState(null);
  const given = series.map((one) => ({
    ...one,
    points: one.points.filter(([when, value]) => known(when) && known(value)),
  }));
  const all = given.flatMap((one) => one.points);
  if (all.length < 2) return html`<div class="plot" ref=${box}><p class="empty">Nothing was measured yet.</p></div>`;
  const [from, to] = extent(all.map(([when]) => when));
  const steps = ticks(Math.max(ceiling, ...all.map(([, value]) => value)) || 1, 3);
  const x = linear(from, to, LEFT, width - 8);
  const y = linear(0, steps.at(-1), HEIGHT - BOTTOM, TOP);
  const point = (event) => {
    const place = event.clientX - event.currentTarget.getBoundingClientRect().left;
    setAt(nearest(all, from + ((place - LEFT) / (width - 8 - LEFT)) * (to - from)));
  };
  return html`<div class="plot" ref=${box}>
    <ul class="legend" aria-label="Legend">
      ${given.map(
        (one, index) => html`<li key=${one.name}>
        <span class=${`swatch line-${index + 1}`} aria-hidden="true"></span>${one.name}
        <b>${read(one.points, at, as)}</b>
      </li>`,
      )}
      ${at !== null && html`<li class="quiet">${clock(at)}</li>`}
    </ul>
    <svg class="lines" width=${width} height=${HEIGHT} role="img" aria-label=${`${label}. ${summary(given, as)}`}
        onPointerMove=${point} onPointerLeave=${() => setAt(null)}>
      ${steps.map(
        (step) => html`<g key=${`y${step}`}>
        <line class="rule" x1=${LEFT} x2=${width - 8} y1=${y(step)} y2=${y(step)} />
        <text class="tick" x=${LEFT - 8} y=${y(step) + 4} text-anchor="end">${as(step)}</text>
      </g>`,
      )}
      ${timeTicks(from, to, Math.max(2, Math.floor(width / 130))).map(
        (when) =>
          html`<text key=${`x${when}`} class="tick" x=${x(when)} y=${HEIGHT - 6} text-anchor="middle">${clock(when, when)}</text>`,
      )}
      ${given.map((one, index) => html`<path key=${one.name} class=${`line line-${index + 1}`} d=${path(one.points, x, y)} />`)}
      ${at !== null && html`<line class="cursor" x1=${x(at)} x2=${x(at)} y1=${TOP} y2=${HEIGHT - BOTTOM} />`}
    </svg>
  </div>`;
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

const path = (points, x, y) =>
  points.map(([when, value], at) => `${at ? "L" : "M"}${x(when).toFixed(1)} ${y(value).toFixed(1)}`).join("");

function nearest(points, wanted) {
  let best = points[0][0];
  for (const [when] of points) if (Math.abs(when - wanted) < Math.abs(best - wanted)) best = when;
  return best;
}

function read(points, at, as) {
  if (!points.length) return "–";
  if (at === null) return as(points.at(-1)[1]);
  let best = points[0];
  for (const one of points) if (Math.abs(one[0] - at) < Math.abs(best[0] - at)) best = one;
  return as(best[1]);
}

const summary = (series, as) =>
  series
    .filter((one) => one.points.length)
    .map((one) => {
      const [low, high] = extent(one.points.map(([, value]) => value));
      return `${one.name}: now ${as(one.points.at(-1)[1])}, between ${as(low)} and ${as(high)}`;
    })
    .join(". ");

/** The points of several series as rows, newest first: [seconds, value of each series or null]. */
export function rowsOf(series) {
  const found = new Map();
  series.forEach((one, index) => {
    for (const [when, value] of one.points) {
      if (!found.has(when))
        found.set(
          when,
          series.map(() => null),
        );
      found.get(when)[index] = value;
    }
  });
  return [...found.entries()].sort(([one], [other]) => other - one);
}
