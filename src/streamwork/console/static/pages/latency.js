// How long events take to the sinks of a live job: percentiles of the last seconds, and their lines since the page was opened.

import { Card, Chart, Table, html, useRef } from "../core/parts.js";
import { count, duration, known } from "../core/format.js";
import { Lines } from "../charts/lines.js";

const MOST_POINTS = 600;
const MOST_SINKS = 2;
const PARTS = [
  ["p50", "p50"],
  ["p99", "p99"],
  ["p999", "p99.9"],
  ["max", "max"],
];

/** What came while this page was open: [seconds, value], by sink and percentile. */
function useTrail(latency) {
  const trail = useRef(new Map());
  for (const sink of latency?.sinks ?? []) {
    for (const part of ["p50", "p99"]) {
      const name = `${sink.component} ${part}`;
      const points = trail.current.get(name) ?? [];
      if (known(sink[part]) && points.at(-1)?.[0] !== latency.at)
        trail.current.set(name, [...points, [latency.at, sink[part]]].slice(-MOST_POINTS));
    }
  }
  return trail.current;
}

export function Latency({ job }) {
  const { latency } = job.status;
  const trail = useTrail(latency);
  if (!latency)
    return job.run?.mode === "live" && job.status.running
      ? html`<${Card} title="Latency to sinks" id="latency"><p class="quiet">Nothing was measured yet.</p></${Card}>`
      : null;
  const slowest = [...latency.sinks].sort((one, other) => (other.p99 ?? 0) - (one.p99 ?? 0)).slice(0, MOST_SINKS);
  const series = slowest.flatMap(({ component }) =>
    ["p50", "p99"].map((part) => ({
      name: `${component} ${part}`,
      points: trail.get(`${component} ${part}`) ?? [],
    })),
  );
  return html`<${Chart} title="Latency to sinks" id="latency" cli=${job.cli} note=${note(latency)}
    chart=${() =>
      html`<div class="stack-s"><ul class="spread wide" aria-label="Percentiles of latency">${latency.sinks.flatMap(
        (sink) =>
          PARTS.map(
            ([part, name]) => html`<li key=${`${sink.component} ${part}`}>
      <span class="wrap">${sink.component} ${name}</span><span class="track" aria-hidden="true"><span class="fill" style=${{ width: `${logarithmic(sink[part])}%` }}></span></span>
      <span class="figure">${duration(sink[part])}</span></li>`,
          ),
      )}</ul>
      ${series.some((one) => one.points.length > 1) && html`<${Lines} series=${series} as=${duration} label="Latency to sinks over time" />`}</div>`}
    table=${() =>
      html`<${Table} caption="Latency by sink" rows=${latency.sinks} rowKey=${(one) => one.component} columns=${[
        { head: "Sink", row: true, wrap: true, cell: (one) => one.component },
        ...PARTS.map(([part, name]) => ({ head: name, number: true, cell: (one) => duration(one[part]) })),
        { head: "Events", number: true, cell: (one) => count(one.events) },
      ]} />`} />`;
}

const note = ({ window_seconds: seconds, sinks }) =>
  `From when a source has read an event until its output is at the sink, over the last ${Math.round(seconds)} s. The bars are logarithmic; the lines begin when this page was opened.` +
  (sinks.some((one) => one.staged) ? " Under exactly-once, rows are staged then, and visible with their checkpoint." : "");

/** From 0.01 ms to 10 s. */
const logarithmic = (seconds) =>
  known(seconds) ? Math.max(1, Math.min(100, (100 * (Math.log10(Math.max(seconds, 1e-5)) + 5)) / 6)) : 0;
