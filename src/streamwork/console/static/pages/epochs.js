// The epochs of a job: the timeline, and everything that one of them left: files, positions, hashes, counters.

import { Card, Chip, Cli, Facts, Table, Trouble, html, useEffect, useRef, useState } from "../core/parts.js";
import { api, jobPath, useJson } from "../core/api.js";
import { bytes, clock, count, duration, plural } from "../core/format.js";
import { jobLink, link } from "../core/route.js";
import { EpochCard, EpochTable } from "./job-overview.js";

const SHOWN = 30;
const OUTCOMES = ["", "completed", "abandoned", "failed", "rolled-forward"];

export function Epochs({ job, name, route }) {
  const wanted = route.path[3] === undefined ? null : Number(route.path[3]);
  const outcome = OUTCOMES.includes(route.query.outcome) ? route.query.outcome : "";
  const version = `${job.status.checkpoint} ${job.run?.epoch}`;
  const around = wanted !== null && job.status.checkpoint - wanted > 60 ? `&before=${wanted + 40}` : "";
  const found = useJson(
    `${jobPath(name, "epochs")}?limit=120${around}${outcome ? `&outcome=${outcome}` : ""}`,
    around ? 0 : version,
  );
  return html`<div class="stack">
    <${EpochCard} name=${name} found=${found.data} selected=${wanted} title="Timeline of epochs" />
    <${Trouble} error=${found.error} />
    ${wanted !== null && html`<${Epoch} key=${wanted} name=${name} epoch=${wanted} version=${version} />`}
    <${Past} name=${name} first=${found.data} outcome=${outcome} />
  </div>`;
}

/** The list, with what is older on request. */
function Past({ name, first, outcome }) {
  const [older, setOlder] = useState({ rows: [], next: undefined, error: null });
  useEffect(() => setOlder({ rows: [], next: undefined, error: null }), [outcome, name]);
  if (!first) return null;
  const next = older.next === undefined ? first.next : older.next;
  const last = first.epochs.at(-1)?.epoch ?? 0;
  const rows =
    older.next === undefined
      ? first.epochs.slice(0, SHOWN)
      : [...first.epochs, ...older.rows.filter((row) => row.epoch < last)];
  const more = () =>
    api(`${jobPath(name, "epochs")}?limit=200&before=${next}${outcome ? `&outcome=${outcome}` : ""}`).then(
      (page) => setOlder({ rows: [...older.rows, ...page.epochs], next: page.next, error: null }),
      (error) => setOlder({ ...older, error }),
    );
  const all = () => setOlder({ rows: [], next: null, error: null });
  const filter = html`<nav class="row small" aria-label="Epochs by outcome">${OUTCOMES.map(
    (one) =>
      html`<a key=${one} class="pick" href=${link(["jobs", name, "epochs"], { outcome: one })} aria-current=${one === outcome ? "true" : null}>${one || "all"}</a>`,
  )}</nav>`;
  return html`<${Card} title="Epochs" label="List of epochs" aside=${filter} footer=${html`<div class="row apart"><span class="small quiet">${plural(first.kept, "epoch")} in the history</span>
      ${(rows.length < first.epochs.length || next) && html`<button type="button" class="button tiny" onClick=${next ? more : all}>Show older ones</button>`}</div>`}>
    <${EpochTable} name=${name} rows=${rows} />
    <${Trouble} error=${older.error} />
  </${Card}>`;
}

const TONES = {
  completed: "good",
  pruned: "good",
  damaged: "bad",
  failed: "bad",
  abandoned: "warn",
  interrupted: "warn",
  quarantined: "bad",
};

function Epoch({ name, epoch, version }) {
  const found = useJson(jobPath(name, "epochs", epoch), version);
  const box = useRef(null);
  useEffect(() => {
    box.current?.scrollIntoView?.({ block: "nearest" });
  }, [found.data === null]);
  if (found.error && !found.data) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return html`<p class="quiet">Reading epoch ${epoch} …</p>`;
  const { state, plan, manifest, files, attempts, instances, problems, cli } = found.data;
  const neighbour = (other, text) => html`<a class="button tiny" href=${jobLink(name, "epochs", other)}>${text}</a>`;
  const aside = html`<div class="row"><${Chip} tone=${TONES[state] ?? ""} dot>${state}</${Chip}>${epoch > 1 && neighbour(epoch - 1, "Previous")}${neighbour(epoch + 1, "Next")}</div>`;
  return html`<div ref=${box} id="epoch"><${Card} title=${`Epoch ${epoch}`} aside=${aside} footer=${html`<${Cli} command=${cli} />`}>
    <div class="stack">
      ${problems.map((one, at) => html`<p key=${at} class="note bad">${one}</p>`)}
      <${Facts} items=${[
        ["Events", manifest && count(manifest.events)],
        [
          "Parent",
          plan || manifest
            ? html`<a href=${jobLink(name, "epochs", (manifest ?? plan).parent)}>${(manifest ?? plan).parent}</a>`
            : "",
        ],
        ["Fence", (manifest ?? plan)?.fence],
        [
          "Files",
          files.length
            ? `${plural(files.length, "file")}, ${bytes(files.reduce((sum, one) => sum + (one.bytes ?? 0), 0))}`
            : "",
        ],
        ["SHA-256", manifest && html`<span class="mono">${manifest.sha256}</span>`],
        ["Parent's SHA-256", manifest?.parent_sha256 && html`<span class="mono">${manifest.parent_sha256}</span>`],
      ]} />
      <${Attempts} rows=${attempts} />
      <${Positions} plan=${plan} manifest=${manifest} />
      <${Counters} manifest=${manifest} instances=${instances} name=${name} />
      <${Files} files=${files} />
    </div>
  </${Card}></div>`;
}

const Attempts = ({ rows }) =>
  rows.length > 0 &&
  html`<section><h3>Attempts</h3><${Table} caption="Attempts at this epoch" rows=${rows} rowKey=${(row) => `${row.fence} ${row.outcome}`} columns=${[
    { head: "Fence", row: true, cell: (row) => row.fence },
    { head: "Outcome", cell: (row) => row.outcome },
    { head: "Started", cell: (row) => clock(row.started) },
    ...["plan", "compute", "prepare", "commit", "complete", "prune"].map((phase) => ({
      head: phase,
      number: true,
      cell: (row) => duration(row.seconds[phase]),
    })),
    { head: "Note", wrap: true, cell: (row) => row.note },
  ]} /></section>`;

function Positions({ plan, manifest }) {
  const names = [...new Set([...Object.keys(plan?.to ?? {}), ...Object.keys(manifest?.positions ?? {})])].sort();
  if (!names.length) return null;
  return html`<section><h3>Positions</h3><${Table} caption="Positions of sources" rows=${names} rowKey=${(one) => one} columns=${[
    { head: "Partition", row: true, wrap: true, cell: (one) => one },
    { head: "From", number: true, cell: (one) => count(plan?.from?.[one]) },
    { head: "To", number: true, cell: (one) => count(plan?.to?.[one] ?? manifest?.positions?.[one]) },
    {
      head: "Read",
      number: true,
      cell: (one) => (plan && one in plan.to ? count(plan.to[one] - (plan.from[one] ?? 0)) : "–"),
    },
    { head: "Watermark", cell: (one) => watermark(manifest?.watermarks, one) },
  ]} /></section>`;
}

function watermark(watermarks, partition) {
  const found = watermarks?.[partition];
  return typeof found === "number" ? clock(found > 1e12 ? found / 1e6 : found) : "–";
}

const KINDS = [
  "processed",
  "delivered",
  "ended_early",
  "dropped",
  "dead_letters",
  "failed",
  "replayed",
  "retried",
  "late",
];

function Counters({ manifest, instances, name }) {
  const rows = instances.length
    ? instances
    : Object.entries(manifest?.counters ?? {}).map(([component, counts]) => ({ component, instance: null, counts }));
  if (!rows.length) return null;
  const kinds = KINDS.filter(
    (kind) => kind === "processed" || kind === "delivered" || rows.some((row) => row.counts[kind]),
  );
  return html`<section><h3>Counters</h3><${Table} caption="What each instance counted" rows=${rows} rowKey=${(row) => `${row.component} ${row.instance} ${row.outcome}`} columns=${[
    {
      head: "Component",
      row: true,
      wrap: true,
      cell: (row) => html`<a href=${jobLink(name, "components", row.component)}>${row.component}</a>`,
    },
    {
      head: "Instance",
      number: true,
      cell: (row) => (row.instance === null || row.instance < 0 ? "all" : row.instance),
    },
    ...kinds.map((kind) => ({
      head: kind.replaceAll("_", " "),
      number: true,
      cell: (row) => count(row.counts[kind] ?? 0),
    })),
  ]} /></section>`;
}

const Files = ({ files }) =>
  files.length > 0 &&
  html`<section><h3>Files</h3><${Table} caption="Files of this epoch" rows=${files} rowKey=${(one) => one.path} tall=${files.length > 12} columns=${[
    { head: "Path", row: true, wrap: true, cell: (one) => html`<span class="mono">${one.path}</span>` },
    { head: "Kind", cell: (one) => one.kind },
    { head: "Bytes", number: true, cell: (one) => count(one.bytes) },
    {
      head: "SHA-256",
      cell: (one) => html`<span class="mono" title=${one.sha256}>${(one.sha256 ?? "").slice(0, 12)}</span>`,
    },
    { head: "On disk", cell: (one) => (one.present ? "yes" : html`<strong class="bad-text">missing</strong>`) },
  ]} /></section>`;
