// The first tab of a job: figures, findings, graph, the newest epochs, input, state, event time, latency.

import { Chart, Figures, Table, html, useRef } from "../core/parts.js";
import { jobPath, useJson } from "../core/api.js";
import { ago, bytes, clock, count, duration, known, rate, short } from "../core/format.js";
import { jobLink } from "../core/route.js";
import { Graph, more } from "../charts/graph.js";
import { Lines, rowsOf } from "../charts/lines.js";
import { PHASES, Timeline, total } from "../charts/timeline.js";
import { Finding } from "./finding.js";
import { Latency } from "./latency.js";
import { processText } from "./life.js";

export function JobOverview({ job, name, now }) {
  const version = `${job.status.checkpoint} ${job.run?.epoch} ${job.status.running}`;
  const epochs = useJson(`${jobPath(name, "epochs")}?limit=120`, version);
  const history = useJson(`${jobPath(name, "history")}?points=200`, version);
  const { status } = job;
  return html`<div class="stack">
    <${Figures} items=${figures(job, now)} />
    ${status.verdicts.slice(1).map((one, at) => html`<${Finding} key=${`${one.kind} ${one.component} ${at}`} verdict=${one} driver=${status.holder} />`)}
    <${GraphCard} job=${job} name=${name} />
    <${EpochCard} name=${name} found=${epochs.data} />
    <div class="grid-2">
      <${InputCards} history=${history.data} />
      <${StateCard} history=${history.data} />
      <${EventTime} job=${job} now=${now} />
      <${Latency} job=${job} />
    </div>
  </div>`;
}

function figures({ status, graph, run }, now) {
  const sources = graph?.nodes.filter((node) => node.kind === "source") ?? [];
  const reading = sources.some((node) => known(node.rate))
    ? sources.reduce((sum, node) => sum + (node.rate ?? 0), 0)
    : null;
  const lags = Object.values(status.lag);
  const behind = status.verdicts.find((one) => known(one.behind_seconds))?.behind_seconds;
  const doubt = status.in_doubt?.length ?? 0;
  return [
    ["Rate", rate(reading), "events read"],
    [
      "Lag",
      lags.length ? short(lags.reduce((sum, one) => sum + one.total, 0)) : "–",
      known(behind) ? `${duration(behind)} of input` : [...new Set(lags.map((one) => one.unit))].join(", "),
    ],
    [
      "Last checkpoint",
      known(status.checkpoint) ? count(status.checkpoint) : "none",
      known(status.completed_at) ? ago(status.completed_at, now) : "",
    ],
    [
      "Interval",
      known(run?.checkpoint_every) ? duration(run.checkpoint_every) : "–",
      status.steps ? `last epoch took ${duration(total({ seconds: status.steps }))}` : "",
    ],
    ["Abandoned", count(status.abandoned), "of the last 100 epochs"],
    ["Driver", status.holder ? `fence ${status.holder.fence}` : "none", driverText(status, now)],
    doubt > 0 && ["In doubt", count(doubt), doubt === 1 ? "slice of input" : "slices of input"],
    status.standbys.length > 0 && [
      "Standby",
      count(status.standbys.length),
      status.standbys.length === 1 ? "process waits" : "processes wait",
    ],
  ];
}

function driverText({ holder }, now) {
  if (!holder) return "";
  const where = processText(holder.process);
  return [where, known(holder.since) ? `since ${clock(holder.since, now)}` : ""].filter(Boolean).join(", ");
}

/** The figures of components as a table: the twin of the graph, and the list on the page of components. */
export const componentColumns = (name) => [
  {
    head: "Component",
    row: true,
    wrap: true,
    cell: (node) => html`<a href=${jobLink(name, "components", node.id)}>${node.id}</a>`,
  },
  { head: "Kind", cell: (node) => node.kind },
  { head: "Rate", number: true, cell: (node) => rate(node.rate) },
  { head: "Processed", number: true, cell: (node) => count(node.processed) },
  { head: "Instances", number: true, cell: (node) => count(node.parallelism) },
  { head: "Keys", number: true, cell: (node) => (node.state ? count(node.state.keys) : "–") },
  { head: "State", number: true, cell: (node) => (node.state ? bytes(node.state.bytes) : "–") },
  { head: "Lag", number: true, cell: (node) => (node.lag ? `${count(node.lag.total)} ${node.lag.unit}` : "–") },
  { head: "Skew", number: true, cell: (node) => (known(node.skew) ? node.skew.toFixed(1) : "–") },
  { head: "Watermark", cell: (node) => clock(node.watermark) },
];

const channelColumns = [
  { head: "From", row: true, wrap: true, cell: (edge) => `${edge.from}${edge.channel ? `.${edge.channel}` : ""}` },
  { head: "To", wrap: true, cell: (edge) => `${edge.to}${edge.port ? `.${edge.port}` : ""}` },
  { head: "Key", cell: (edge) => edge.key?.join(", ") ?? edge.grouping ?? "–" },
  { head: "Rate", number: true, cell: (edge) => rate(edge.rate) },
  { head: "Waiting", number: true, cell: (edge) => count(edge.waiting) },
  {
    head: "Full",
    number: true,
    cell: (edge) => (known(edge.full) ? `${edge.full ? "yes" : "no"}, ${duration(edge.full_seconds)} in all` : "–"),
  },
  { head: "Dropped", number: true, cell: (edge) => count(edge.dropped) },
];

export const ChannelTable = ({ edges }) =>
  html`<${Table} caption="Channels between components" columns=${channelColumns} rows=${edges} rowKey=${(edge) => `${edge.from} ${edge.channel} ${edge.to} ${edge.port}`} empty="No channels." />`;

function GraphCard({ job, name }) {
  const nodes = (job.graph?.nodes ?? []).map((node) => drawn(node, job.status));
  const edges = (job.graph?.edges ?? []).map((edge) => ({ ...edge, events: edge.waiting }));
  return html`<${Chart} title="Graph" id="graph" cli=${job.cli}
    chart=${() => html`<${Graph} nodes=${nodes} edges=${edges} to=${(id) => jobLink(name, "components", id)} label=${`Graph of job ${name}`} />`}
    table=${() => html`<div class="stack"><${Table} caption="Components" columns=${componentColumns(name)} rows=${job.graph?.nodes ?? []} rowKey=${(node) => node.id} empty="The graph is known after the first checkpoint." />
      <${ChannelTable} edges=${job.graph?.edges ?? []} /></div>`} />`;
}

function drawn(node, status) {
  const about = status.verdicts.find((one) => one.component === node.id && one.kind !== "keeping up");
  const tone = about ? (about.kind === "stopped" ? "bad" : "warn") : node.retrying || node.dropped ? "warn" : "";
  const note = node.retrying
    ? `${count(node.retrying)} retrying`
    : about && about.kind !== "falling behind"
      ? about.kind
      : "";
  return {
    ...node,
    instances: node.parallelism,
    keys: node.state?.keys,
    bytes: node.state?.bytes,
    tone,
    note: note || more({ ...node, keys: node.state?.keys, bytes: node.state?.bytes }),
  };
}

const epochColumns = (name) => [
  { head: "Epoch", row: true, cell: (row) => html`<a href=${jobLink(name, "epochs", row.epoch)}>${row.epoch}</a>` },
  { head: "Outcome", cell: (row) => row.outcome },
  { head: "Started", cell: (row) => clock(row.started) },
  { head: "Events", number: true, cell: (row) => count(row.events) },
  { head: "Took", number: true, cell: (row) => duration(total(row)) },
  ...PHASES.map((phase) => ({ head: phase, number: true, cell: (row) => duration(row.seconds[phase]) })),
  { head: "Fence", number: true, cell: (row) => row.fence },
  { head: "Note", wrap: true, cell: (row) => row.note },
];

export const rowKey = (row) => `${row.epoch} ${row.fence} ${row.outcome}`;

export const EpochTable = ({ name, rows, tall }) =>
  html`<${Table} caption="Epochs, newest first" columns=${epochColumns(name)} rows=${rows} rowKey=${rowKey} tall=${tall} empty="No epoch yet." />`;

export function EpochCard({ name, found, selected, title = "Epochs" }) {
  const rows = found?.epochs ?? [];
  return html`<${Chart} title=${title} id="epochs" cli=${found?.cli}
    chart=${() => html`<${Timeline} rows=${rows} selected=${selected} to=${(epoch) => jobLink(name, "epochs", epoch)} label="Epochs, oldest first: seconds by phase. Arrow keys move along." />`}
    table=${() => html`<${EpochTable} name=${name} rows=${rows} tall />`} />`;
}

function LineCard({ title, series, as, cli, note, label, ceiling }) {
  const columns = [
    { head: "Time", row: true, cell: ([at]) => clock(at) },
    ...series.map((one, index) => ({
      head: one.name,
      number: true,
      cell: ([, values]) => (known(values[index]) ? as(values[index]) : "–"),
    })),
  ];
  return html`<${Chart} title=${title} cli=${cli} note=${note}
    chart=${() => html`<${Lines} series=${series} as=${as} label=${label ?? title} ceiling=${ceiling} />`}
    table=${() => html`<${Table} caption=${title} columns=${columns} rows=${rowsOf(series)} rowKey=${([at]) => at} tall empty="Nothing was measured yet." />`} />`;
}

function InputCards({ history }) {
  return (history?.input ?? []).flatMap((one) => [
    html`<${LineCard} key=${`rate ${one.source}`} title=${`Input of ${one.source}`} cli=${history.cli} as=${rate} series=${[
      { name: "coming in", points: one.points.map((point) => [point.at, point.incoming]) },
      { name: "read", points: one.points.map((point) => [point.at, point.reading]) },
    ]} />`,
    html`<${LineCard} key=${`lag ${one.source}`} title=${`Lag of ${one.source}`} cli=${history.cli} as=${short} ceiling=${10} series=${[
      { name: one.unit, points: one.points.map((point) => [point.at, point.lag]) },
    ]} />`,
  ]);
}

function StateCard({ history }) {
  const found = history?.state ?? [];
  if (!found.length) return null;
  const largest = [...found]
    .sort((one, other) => (other.points.at(-1)?.bytes ?? 0) - (one.points.at(-1)?.bytes ?? 0))
    .slice(0, 4);
  return html`<${LineCard} title="Size of the state" cli=${history.cli} as=${bytes}
    note=${found.length > 4 ? "The four largest components." : null}
    series=${largest.map((one) => ({ name: one.component, points: one.points.map((point) => [point.at, point.bytes]) }))} />`;
}

const MOST_POINTS = 300;

/** The newest checkpoints that came while this page was open: [processing time, how far event time was behind], by partition. */
function useTrail(job) {
  const trail = useRef(new Map());
  const at = job.status.completed_at;
  for (const one of job.event_time ?? []) {
    const name = partitionName(one);
    const points = trail.current.get(name) ?? [];
    if (known(at) && known(one.behind) && points.at(-1)?.[0] !== at)
      trail.current.set(name, [...points, [at, one.behind]].slice(-MOST_POINTS));
  }
  return trail.current;
}

const partitionName = (one) => (one.partition === "" ? one.source : `${one.source}/${one.partition}`);

function EventTime({ job }) {
  const trail = useTrail(job);
  if (!job.event_time?.length) return null;
  const most = Math.max(1, ...job.event_time.map((one) => one.behind ?? 0));
  const latest = [...job.event_time].sort((one, other) => (other.behind ?? 0) - (one.behind ?? 0)).slice(0, 2);
  const series = latest.map((one) => ({ name: partitionName(one), points: trail.get(partitionName(one)) ?? [] }));
  return html`<${Chart} title="Event time against processing time" cli=${job.cli} note="How far the watermark of the newest checkpoint was behind the clock; the lines begin when this page was opened."
    chart=${() => html`<div class="stack-s"><ul class="spread wide" aria-label="Distance of event time">${job.event_time.map(
      (one) => html`<li key=${partitionName(one)}>
      <span class="wrap">${partitionName(one)}</span><span class="track" aria-hidden="true"><span class="fill" style=${{ width: `${Math.max(1, (100 * (one.behind ?? 0)) / most)}%` }}></span></span>
      <span class="figure">${duration(one.behind)}</span></li>`,
    )}</ul>
      ${series.some((one) => one.points.length > 1) && html`<${Lines} series=${series} as=${duration} label="Event time behind processing time" />`}</div>`}
    table=${() =>
      html`<${Table} caption="Event time" rows=${job.event_time} rowKey=${partitionName} columns=${[
        { head: "Partition", row: true, wrap: true, cell: partitionName },
        { head: "Watermark", cell: (one) => clock(one.watermark) },
        { head: "Behind", number: true, cell: (one) => duration(one.behind) },
      ]} />`} />`;
}
