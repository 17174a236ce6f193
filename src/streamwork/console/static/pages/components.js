// The components of a job, and one of them with its instances, so that skew is seen.

import { Card, Chart, Chip, Facts, Table, html } from "../core/parts.js";
import { bytes, clock, count, duration, known, rate } from "../core/format.js";
import { jobLink } from "../core/route.js";
import { ChannelTable, componentColumns } from "./job-overview.js";
import { Key, KeyForm } from "./keys.js";

const SKEWED = 2;

export function Components({ job, name, route, now }) {
  const nodes = job.graph?.nodes ?? [];
  const wanted = route.path[3];
  const node = nodes.find((one) => one.id === wanted);
  if (wanted === undefined) {
    return html`<${Card} title="Components"><${Table} caption="Components" columns=${componentColumns(name)} rows=${nodes} rowKey=${(one) => one.id} empty="The graph is known after the first checkpoint." /></${Card}>`;
  }
  if (!node)
    return html`<p class="note warn">Job ${name} has no component ${wanted}. <a href=${jobLink(name, "components")}>All components</a></p>`;
  return html`<div class="stack">
    ${route.path[4] === "keys" && html`<${Key} name=${name} component=${node.id} text=${route.path[5] ?? ""} at=${route.query.at} version=${job.status.checkpoint} />`}
    <${One} node=${node} job=${job} name=${name} now=${now} />
  </div>`;
}

function One({ node, job, name, now }) {
  const edges = (job.graph?.edges ?? []).filter((edge) => edge.from === node.id || edge.to === node.id);
  return html`
    <${Card} title=${node.id} aside=${html`<${Chip}>${node.kind}</${Chip}>`}>
      <${Facts} items=${[
        ["Class", node.component],
        ["Takes", node.takes],
        ["Gives", node.gives],
        ["Keeps", node.keeps],
        ["Key", node.key?.join(", ")],
        ["Rate", known(node.rate) ? rate(node.rate) : ""],
        ["Processed", count(node.processed)],
        ["State", node.state ? `${count(node.state.keys)} keys, ${bytes(node.state.bytes)}` : ""],
        ["Lag", node.lag ? `${count(node.lag.total)} ${node.lag.unit}` : ""],
        [
          "Watermark",
          known(node.watermark)
            ? `${clock(node.watermark, now)}, ${duration(Math.max(0, now - node.watermark))} behind the clock`
            : "",
        ],
        ["Retrying", node.retrying ? count(node.retrying) : ""],
        ["Dropped", node.dropped ? count(node.dropped) : ""],
        [
          "Dead letters",
          node.dead_letters
            ? html`<a href=${`${jobLink(name, "letters")}?component=${encodeURIComponent(node.id)}`}>${count(node.dead_letters)}</a>`
            : "",
        ],
      ]} />
    </${Card}>
    <${Instances} node=${node} cli=${job.cli} />
    ${node.state && node.key && html`<${KeyForm} name=${name} component=${node.id} />`}
    <${Counters} counts=${job.status.counts[node.id]} />
    ${edges.length > 0 && html`<${Card} title="Channels"><${ChannelTable} edges=${edges} /></${Card}>`}`;
}

function Instances({ node, cli }) {
  const { instances } = node;
  if (!instances?.length) return null;
  const even = 1 / instances.length;
  const note = known(node.skew) ? `The busiest instance processed ${node.skew.toFixed(1)} times the mean.` : null;
  const stuck = instances.filter((one) => one.stack?.length);
  return html`<${Chart} title="Instances" cli=${cli} note=${note}
    chart=${() =>
      html`<ul class="spread" aria-label="Share of events by instance">${instances.map(
        (one) => html`<li key=${one.instance} class=${one.share > SKEWED * even ? "warn" : ""}>
      <span>[${one.instance}]</span>
      <span class="track" aria-hidden="true"><span class="fill" style=${{ width: `${Math.max(0.5, 100 * (one.share ?? 0))}%` }}></span></span>
      <span class="figure">${known(one.rate) ? rate(one.rate) : percent(one.share)}</span></li>`,
      )}</ul>`}
    table=${() =>
      html`<${Table} caption=${`Instances of ${node.id}`} rows=${instances} rowKey=${(one) => one.instance} columns=${[
        { head: "Instance", row: true, cell: (one) => one.instance },
        { head: "Rate", number: true, cell: (one) => rate(one.rate) },
        { head: "Share", number: true, cell: (one) => percent(one.share) },
        { head: "Processed", number: true, cell: (one) => count(one.processed) },
        { head: "Epoch", number: true, cell: (one) => count(one.epoch) },
        { head: "At work", cell: (one) => (known(one.busy) ? (one.busy ? "yes" : "no") : "–") },
        { head: "Waiting", number: true, cell: (one) => count(one.waiting) },
        { head: "Last event", wrap: true, cell: (one) => one.last_event || "–" },
      ]} />`} />
    ${stuck.map(
      (
        one,
      ) => html`<${Card} key=${one.instance} title=${`${node.id}[${one.instance}] does not move`}><div class="stack-s">
      ${one.last_event && html`<p class="wrap">Its last event: <code>${one.last_event}</code></p>`}<pre class="text" tabindex="0">${one.stack.join("\n")}</pre></div></${Card}>`,
    )}`;
}

const percent = (share) => (known(share) ? `${(100 * share).toFixed(1)} %` : "–");

function Counters({ counts }) {
  if (!counts) return null;
  const kinds = Object.keys(counts.attempted);
  return html`<${Card} title="Times processed, times delivered"><${Table} caption="Counters since the history began" rows=${kinds} rowKey=${(kind) => kind} columns=${[
    { head: "Counter", row: true, cell: (kind) => kind.replaceAll("_", " ") },
    { head: "Committed", number: true, cell: (kind) => count(counts.committed[kind] ?? 0) },
    { head: "In all attempts", number: true, cell: (kind) => count(counts.attempted[kind]) },
  ]} /></${Card}>`;
}
