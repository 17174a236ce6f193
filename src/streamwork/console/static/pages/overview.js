// All jobs of the root: the verdict of each in one sentence, with its figures. Those in trouble stand first.

import { Cli, Dot, html, useEffect, useState } from "../core/parts.js";
import { ago, count, duration, known, rate, short } from "../core/format.js";
import { listen, useNow } from "../core/live.js";
import { jobLink } from "../core/route.js";
import { byTrouble, headline, sentence, toneOfJob } from "../core/verdict.js";
import { useJson } from "../core/api.js";

const FILTER_FROM = 8;

/** name -> summary, kept up to date by the stream. */
function useJobs() {
  const [jobs, setJobs] = useState(null);
  useEffect(
    () =>
      listen("events", {
        overview: (news) =>
          setJobs((before) => {
            const next = new Map(news.all ? [] : before);
            for (const name of news.gone ?? []) next.delete(name);
            for (const one of news.jobs) next.set(one.job, one);
            return next;
          }),
      }),
    [],
  );
  return jobs;
}

export function Overview({ session }) {
  const jobs = useJobs();
  const first = useJson("overview");
  const [wanted, setWanted] = useState("");
  const now = useNow();
  useEffect(() => {
    document.title = "Jobs · Streamwork";
  }, []);
  const all = jobs ? [...jobs.values()] : first.data?.jobs;
  if (!all) return html`<h1 class="lede">Reading the jobs of this root …</h1>`;
  const shown = all.filter((one) => one.job.toLowerCase().includes(wanted.toLowerCase())).sort(byTrouble);
  return html`<div class="stack">
    <div class="row apart">
      <h1 class="lede tight">${headline(all)}</h1>
      ${
        all.length >= FILTER_FROM &&
        html`<div class="field"><label for="filter">Filter by name</label>
        <input id="filter" type="search" value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></div>`
      }
    </div>
    ${all.length ? html`<${JobTable} jobs=${shown} now=${now} />` : html`<${FirstSteps} root=${session.root} />`}
    <${Cli} command=${first.data?.cli} />
  </div>`;
}

const HEADS = ["Job", "Rate", "Lag", "Last checkpoint", "Semantics", "Driver"];

// Roles are written out, because the table becomes a list of cards where there is little room.
function JobTable({ jobs, now }) {
  return html`<table class="jobs" role="table">
    <caption class="unseen">The jobs of this root</caption>
    <thead role="rowgroup"><tr role="row">${HEADS.map((head) => html`<th scope="col" role="columnheader" key=${head}>${head}</th>`)}</tr></thead>
    <tbody role="rowgroup">${jobs.map((one) => html`<${JobRow} key=${one.job} job=${one} now=${now} />`)}</tbody>
  </table>`;
}

function JobRow({ job, now }) {
  const tone = toneOfJob(job);
  const says = job.problem || job.verdict?.text || "Nothing is known yet";
  return html`<tr role="row" class=${tone}>
    <th scope="row" role="rowheader">
      <a class="job-name" href=${jobLink(job.job)}><${Dot} tone=${tone} />${job.job}</a>
      <span class="says">${sentence(says, job.verdict?.component)}</span>
      ${job.verdicts > 1 && html`<span class="small quiet">and ${job.verdicts - 1} more</span>`}
    </th>
    <${Cell} head="Rate" value=${rate(job.rate?.reading)} more=${joined(job.rate?.unit, known(job.rate?.incoming) && `${rate(job.rate.incoming)} coming in`)} />
    <${Cell} head="Lag" value=${lag(job.lag)} more=${joined(job.lag?.total && job.lag.unit, known(job.lag?.seconds) && `${duration(job.lag.seconds)} of input`)} />
    <${Cell} head="Last checkpoint" value=${known(job.checkpoint) ? count(job.checkpoint) : "none"}
      more=${known(job.completed_at) ? html`<time datetime=${new Date(job.completed_at * 1000).toISOString()}>${ago(job.completed_at, now)}</time>` : ""}
      extra=${job.abandoned ? `${job.abandoned} of 100 abandoned` : ""} />
    <${Cell} head="Semantics" value=${job.semantics || "–"} more=${joined(job.mode, job.checkpoint_every && `every ${duration(job.checkpoint_every)}`)} text />
    <${Cell} head="Driver" value=${driver(job)} more=${job.driver ? `${job.driver.machine}:${job.driver.pid}` : ""}
      extra=${joined(job.standbys && `${job.standbys} on standby`, job.dead_letters > job.replayed && `${count(job.dead_letters - job.replayed)} dead letters`)} text />
  </tr>`;
}

const Cell = ({ head, value, more, extra, text }) => html`<td role="cell" data-head=${head}>
  <span class=${text ? "value" : "value figure"}>${value}</span>
  ${more ? html`<span class="more">${more}</span>` : null}${extra ? html`<span class="more">${extra}</span>` : null}
</td>`;

const joined = (...parts) => parts.filter(Boolean).join(", ");

const lag = (found) => (!found ? "–" : found.total ? short(found.total) : "none");

export function driver(job) {
  if (!job.driver) return "never started";
  if (job.restarting) return "restarting";
  return (
    { running: "running", gone: "killed or crashed", ended: "ended", unknown: "perhaps running" }[job.driver.life] ??
    job.driver.life
  );
}

const FirstSteps = ({ root }) => html`<section class="card" aria-label="First steps"><div class="body stack-s">
  <p>A job appears here as soon as it is started with this root:</p>
  <${Cli} command=${`streamwork run JOBFILE --root ${root}`} />
  <p class="quiet">Or a small job on generated input, without Spark:</p>
  <${Cli} command="streamwork demo card-usage" />
</div></section>`;
