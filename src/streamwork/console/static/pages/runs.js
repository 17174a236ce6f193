// The runs of a job: its drivers, the errors that ended or restarted them, events in retry, input in doubt, and the log.

import { Card, Chip, Cli, Facts, Table, Trouble, html, useState } from "../core/parts.js";
import { jobPath, useJson } from "../core/api.js";
import { clock, count, duration, known } from "../core/format.js";
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

const TONES = { error: "bad", warning: "warn" };

/** What the job has written to its log, newest first; a failed task with its traceback. */
function Log({ name, version }) {
  const [errors, setErrors] = useState(false);
  const found = useJson(`${jobPath(name, "log")}?last=200${errors ? "&errors=1" : ""}`, version);
  if (found.error?.status === 404) return null;
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return null;
  const entries = [...found.data.entries].reverse();
  const aside = html`<label class="check"><input type="checkbox" checked=${errors} onChange=${(event) => setErrors(event.target.checked)} /> Errors only</label>`;
  return html`<${Card} title="Log" id="log" aside=${aside} footer=${html`<${Cli} command=${found.data.cli} />`}>
    ${
      entries.length
        ? html`<ol class="log" tabindex="0" aria-label="Entries of the log, newest first">${entries.map((one, at) => html`<${Entry} key=${`${one.time} ${entries.length - at}`} entry=${one} />`)}</ol>`
        : html`<p class="empty">${errors ? "No error in the log." : "The log is empty."}</p>`
    }
  </${Card}>`;
}

function Entry({ entry }) {
  const at = Date.parse(entry.time) / 1000;
  const where = [
    entry.component && `${entry.component}${known(entry.instance) ? `[${entry.instance}]` : ""}`,
    known(entry.epoch) && `epoch ${entry.epoch}`,
    known(entry.fence) && `fence ${entry.fence}`,
  ]
    .filter(Boolean)
    .join(", ");
  return html`<li>
    <p class="small quiet"><time datetime=${entry.time}>${Number.isNaN(at) ? entry.time : clock(at)}</time> <${Chip} tone=${TONES[entry.level] ?? ""}>${entry.level}</${Chip}> ${where}</p>
    <p class="wrap">${entry.code ? html`<strong>${entry.code}</strong> ${entry.cause ?? entry.message}` : entry.message}</p>
    ${entry.action && html`<p class="wrap">${entry.action}</p>`}
    ${entry.traceback && html`<details><summary>Traceback</summary><pre class="text" tabindex="0" aria-label="Traceback">${entry.traceback}</pre></details>`}
  </li>`;
}
