// The runs of a job: its drivers, the errors that ended or restarted them, events in retry, input in doubt, and the log.

import { Card, Cli, Facts, Table, Trouble, html } from "../core/parts.js";
import { jobPath, useJson } from "../core/api.js";
import { clock, count, duration } from "../core/format.js";
import { lifeOf, processText } from "./life.js";

export function Runs({ job, name, now }) {
  const { status, run } = job;
  const failures = [...(run?.failures ?? [])].sort((one, other) => other.at - one.at);
  const starts = [...(run?.starts ?? [])].sort((one, other) => other.at - one.at);
  return html`<div class="stack">
    <${Card} title="Driver" footer=${html`<${Cli} command=${job.cli} />`}><${Facts} items=${[
      ["State", lifeOf(status)[1]],
      ["Process", status.holder && processText(status.holder.process)],
      ["Fence", status.holder?.fence],
      ["Since", status.holder && clock(status.holder.since, now)],
      ["Mode", run?.mode],
      ["Checkpoint every", run?.checkpoint_every && duration(run.checkpoint_every)],
      ["At work on", run?.epoch ? `epoch ${run.epoch}, ${run.phase}` : ""],
      [
        "Parameters",
        Object.entries(status.params)
          .map(([key, value]) => `${key}=${value}`)
          .join(", "),
      ],
      ["Standbys", status.standbys.map((one) => processText(one.process)).join(", ")],
    ]} /></${Card}>
    <${Card} title="Restarts and their errors"><${Table} caption="Failures, newest first" rows=${failures} rowKey=${(one) => `${one.fence} ${one.at}`} empty="No driver of this job has failed lately." columns=${[
      { head: "Time", row: true, cell: (one) => clock(one.at, now) },
      { head: "Fence", number: true, cell: (one) => one.fence },
      { head: "Error", wrap: true, cell: (one) => one.error },
    ]} /></${Card}>
    ${
      starts.length > 0 &&
      html`<${Card} title="Starts"><${Table} caption="Starts, newest first" rows=${starts} rowKey=${(one) => `${one.fence} ${one.at}`} tall=${starts.length > 12} columns=${[
        { head: "Time", row: true, cell: (one) => clock(one.at, now) },
        { head: "Fence", number: true, cell: (one) => one.fence },
      ]} /></${Card}>`
    }
    ${
      status.retrying.length > 0 &&
      html`<${Card} title="Events in retry"><${Table} caption="Events that are retried in place" rows=${status.retrying} rowKey=${(one) => `${one.component} ${one.instance} ${one.event}`} columns=${[
        { head: "Component", row: true, wrap: true, cell: (one) => `${one.component}[${one.instance}]` },
        { head: "Event", wrap: true, cell: (one) => one.event },
        { head: "Error", wrap: true, cell: (one) => one.error },
        { head: "Failures", number: true, cell: (one) => count(one.failures) },
        { head: "For", number: true, cell: (one) => duration(one.for_seconds) },
        { head: "Then", cell: (one) => one.then },
      ]} /></${Card}>`
    }
    ${
      status.in_doubt.length > 0 &&
      html`<${Card} title="Input in doubt"><${Table} caption="Input of epochs that broke off" rows=${status.in_doubt} rowKey=${(one) => `${one.epoch} ${one.source} ${one.start}`} columns=${[
        { head: "Partition", row: true, wrap: true, cell: (one) => one.source },
        { head: "Epoch", number: true, cell: (one) => one.epoch },
        { head: "From", number: true, cell: (one) => count(one.start) },
        { head: "To", number: true, cell: (one) => count(one.end) },
        { head: "Unit", cell: (one) => one.unit },
      ]} /></${Card}>`
    }
    <${Log} name=${name} version=${`${status.checkpoint} ${failures.length}`} />
  </div>`;
}

function Log({ name, version }) {
  const found = useJson(jobPath(name, "log"), version);
  if (found.error?.status === 404) return null;
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return null;
  const lines = found.data.lines ?? [];
  const text = lines
    .map((line) =>
      typeof line === "string"
        ? line
        : [clock(line.at), line.level, line.text ?? line.message, line.traceback].filter(Boolean).join(" "),
    )
    .join("\n");
  return html`<${Card} title="Log" footer=${html`<${Cli} command=${found.data.cli} />`}>
    ${text ? html`<pre class="text" tabindex="0" aria-label="Log">${text}</pre>` : html`<p class="empty">The log is empty.</p>`}</${Card}>`;
}
