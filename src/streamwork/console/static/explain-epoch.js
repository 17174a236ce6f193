// One real epoch, step by step: its files, what is durable, and what the next start does after a kill at this point.

import { Cli, Table, Trouble, html, useEffect, useRef, useState } from "./core/parts.js";
import { bytes, count, plural } from "./core/format.js";
import { link, useRoute } from "./core/route.js";

const TONES = { "read again": "warn", "leave out": "bad", "roll forward": "info", "go on": "good" };
const SHORT = { "read again": "computed again", "leave out": "left out", "roll forward": "rolled forward", "go on": "complete already" };
const NO_RETURN = "prepare"; // the step from which on an epoch is never computed again

export function EpochSteps({ job, api }) {
  const route = useRoute();
  const wanted = /^\d{1,12}$/.test(route.path[3] ?? "") ? Number(route.path[3]) : null;
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [row, setRow] = useState(0);
  useEffect(() => {
    const path = ["jobs", encodeURIComponent(job), "explain", ...(wanted === null ? [] : ["epochs", wanted])].join("/");
    let left = false;
    api(path).then(
      (data) => {
        if (left) return;
        const last = data.crash_table.length - 1;
        const given = Number(route.query.row ?? "");
        setRow(route.query.row !== undefined && given >= 0 && given <= last ? Math.floor(given) : data.here === last ? 0 : data.here);
        setFound(data);
        setError(null);
      },
      (problem) => !left && setError(problem),
    );
    return () => { left = true; };
  }, [job, wanted]);
  const show = (next) => {
    const at = Math.max(0, Math.min(found.crash_table.length - 1, next));
    setRow(at);
    history.replaceState(null, "", link(["jobs", job, "explain", String(found.checkpoint)], { row: at }));
  };
  return html`<section class="card epoch-steps" aria-labelledby="epoch-title">
    <header><h2 id="epoch-title">${found ? `Epoch ${found.checkpoint} of this job, step by step` : "An epoch of this job, step by step"}</h2>
      ${found && html`<${Choice} job=${job} found=${found} />`}</header>
    <div class="body stack">
      <${Trouble} error=${error} />
      ${found && html`<${Steps} found=${found} row=${row} show=${show} />`}
    </div>
    ${found && html`<footer><${Cli} command=${found.cli} /></footer>`}
  </section>`;
}

const Choice = ({ job, found }) => html`<div class="field choice"><label for="epoch-choice">Epoch</label>
  <select id="epoch-choice" onChange=${(event) => { location.hash = link(["jobs", job, "explain", event.target.value]); }}>
    ${found.kept.map((one) => html`<option key=${one} value=${one} selected=${one === found.checkpoint}>${one}</option>`)}
  </select></div>`;

function Steps({ found, row, show }) {
  const now = found.crash_table[row];
  const at = found.steps.findIndex((step) => step.name === now.step);
  const step = found.steps[at];
  const box = useRef(null);
  useEffect(() => {
    const rail = box.current.querySelector(".rail");
    if (rail.contains(document.activeElement)) rail.querySelector("[aria-current]")?.focus();
  }, [at]);
  const pressed = (event) => {
    const to = { ArrowRight: row + 1, ArrowLeft: row - 1, Home: 0, End: found.crash_table.length - 1 }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    show(to);
  };
  return html`<div class="stack" ref=${box} onKeyDown=${pressed}>
    <p class="quiet">${found.story} It reads ${slices(found)}${found.events === null ? "" : ` (${plural(found.events, "event")})`}, on top of checkpoint ${found.parent}, ${found.semantics}.</p>
    <ol class="rail" aria-label="The steps of an epoch">${found.steps.map((one, place) => html`<li key=${one.name} class=${railClass(found, one, place, at)}>
      <button type="button" aria-current=${place === at ? "step" : null} onClick=${() => show(found.crash_table.findIndex((each) => each.step === one.name))}>
        <span class="number">${one.number === "." ? "·" : one.number}</span><span class="name">${one.name}</span>
        <span class="taken">${one.reached ? (one.seconds === null ? "" : milliseconds(one.seconds)) : "not reached"}</span>
      </button>${one.name === NO_RETURN && html`<span class="no-return">point of no return</span>`}</li>`)}</ol>
    <div class="moment">
      <div class="stack-s says" aria-live="polite">
        <h3>${step.number === "." ? "After that" : `Step ${step.number}`}: ${step.name}${partly(now)}</h3>
        <p>${step.does}</p>
        <p><strong>Durable now:</strong> ${step.durable}</p>
        <div class=${`kill ${TONES[now.action] ?? ""}`}>
          <p class="kind">If the driver is killed ${now.killed.replace(/\d /, "").replace(/, (.*)/, " ($1)")}, this epoch is <b>${SHORT[now.action] ?? now.action}</b>. What the next start does:</p>
          <p class="answer">${now.does}</p>
        </div>
        <div class="row">
          <button type="button" class="button" disabled=${row === 0} onClick=${() => show(row - 1)}>← Back</button>
          <button type="button" class="button main" disabled=${row === found.crash_table.length - 1} onClick=${() => show(row + 1)}>Next step →</button>
          <span class="small quiet">or the arrow keys</span>
        </div>
      </div>
      <${World} found=${found} row=${row} />
    </div>
    <${Files} step=${step} />
    <${CrashTable} found=${found} row=${row} show=${show} />
  </div>`;
}

/** Of a commit: which sinks have committed at this point. */
const partly = (row) => (row.step === "commit" && row.offered.length ? `, ${row.held.join(" and ")} of ${row.held.length + row.offered.length} sinks` : "");

function railClass(found, step, place, at) {
  const rows = found.crash_table.filter((each) => each.step === step.name);
  const tone = rows.length ? TONES[rows[rows.length - 1].action] ?? "" : "none";
  return `${tone}${place < at ? " past" : place === at ? " present" : ""}`;
}

/** What is on disk and in the sinks at this point, and what of it counts. */
function World({ found, row }) {
  const now = found.crash_table[row];
  const order = found.steps.map((step) => step.name);
  const done = (name) => order.indexOf(name) <= order.indexOf(now.step);
  const computed = found.steps.find((step) => step.name === "compute").files.length;
  const epoch = found.checkpoint;
  const things = [
    ["plan", `plan of epoch ${epoch}`, done("plan")],
    ["files", computed ? `${computed} ${computed === 1 ? "file" : "files"} of its instances` : "the files of its instances", done("compute")],
    ["prepared", `manifest ${epoch}, prepared`, done("prepare")],
    ["completed", `manifest ${epoch}, completed`, done("complete")],
  ];
  const sinks = [...new Set(found.crash_table.flatMap((each) => [...each.offered, ...each.held]))];
  const counts = done("complete") ? epoch : found.parent;
  return html`<aside class="world" aria-label="What is where at this point">
    <h3>On disk</h3>
    <ul><li class="there old"><i aria-hidden="true">■</i> checkpoint ${found.parent}</li>${things.map(([key, text, there]) => html`<li key=${key} class=${there ? "there" : "missing"}>
      <i aria-hidden="true">${there ? "■" : "□"}</i> ${text}<span class="unseen">${there ? ", there" : ", not there yet"}</span>
      ${key === "files" && there && html`<em>${done("prepare") ? "named by the manifest" : "no manifest names them"}</em>`}</li>`)}</ul>
    ${sinks.length > 0 && html`<h3>In the sinks</h3><ul>${sinks.map((name) => {
      const has = now.held.includes(name) || done("complete");
      return html`<li key=${name} class=${has ? "there" : "missing"}><i aria-hidden="true">${has ? "■" : "□"}</i> <b>${name}</b> ${has ? `has the rows of ${epoch}` : `is at checkpoint ${found.parent}`}</li>`;
    })}</ul>`}
    <p class="counts">Newest completed checkpoint: <b>${counts}</b></p>
  </aside>`;
}

function Files({ step }) {
  if (step.ledgers.length) {
    return html`<div><h3>The ledger rows that step ${step.number} writes, in the sinks</h3>
      <${Table} caption="Ledger rows" rows=${step.ledgers} rowKey=${(one) => one.sink} columns=${[
        { head: "Sink", row: true, cell: (one) => one.sink },
        { head: "Position", wrap: true, cell: (one) => places(one.position) },
        { head: "Manifest", cell: (one) => html`<code title=${one.manifest_sha256}>${one.manifest_sha256.slice(0, 12)}</code>` },
      ]} /></div>`;
  }
  if (!step.files.length) return html`<p class="quiet">Step “${step.name}” of this epoch has written no file${step.reached ? "" : ": it was not reached"}.</p>`;
  return html`<div><h3>The files that this step has written</h3>
    <${Table} caption=${`Files of step ${step.name}`} rows=${step.files} rowKey=${(one) => one.path} columns=${[
      { head: "File", row: true, wrap: true, cell: (one) => html`<code>${one.path}</code>` },
      { head: "Content", wrap: true, cell: (one) => (one.there ? one.content : `${one.content}; removed since`) },
      { head: "Rows", number: true, cell: (one) => (one.rows === null ? "" : count(one.rows)) },
      { head: "Size", number: true, cell: (one) => (one.bytes === null ? "" : bytes(one.bytes)) },
      { head: "sha256", cell: (one) => (one.sha256 === null ? "" : html`<code title=${one.sha256}>${one.sha256.slice(0, 12)}</code>`) },
      { head: "Written", number: true, cell: (one) => (one.written_at === null ? "" : clock(one.written_at)) },
    ]} /></div>`;
}

const CrashTable = ({ found, row, show }) => html`<div><h3>The crash table</h3>
  <p class="small quiet">Made by the code that decides at a start, from what each kill would leave.</p>
  <div class="scroll" role="region" aria-label="Crash table" tabindex="0"><table class="crash-table">
    <thead><tr><th scope="col">Killed</th><th scope="col">What it leaves</th><th scope="col">What the next start does</th></tr></thead>
    <tbody>${found.crash_table.map((one, at) => html`<tr key=${one.killed} class=${`${TONES[one.action] ?? ""}${at === row ? " present" : ""}`} aria-current=${at === row ? "true" : null}>
      <th scope="row"><button type="button" onClick=${() => show(at)}>${one.killed}</button>${at === found.here && html`<span class="chip">this epoch ${found.here === found.crash_table.length - 1 ? "is" : "stopped"} here</span>`}</th>
      <td>${one.left}</td><td>${one.does}</td></tr>`)}</tbody>
  </table></div></div>`;

const places = (position) => {
  const parts = Object.entries(position).map(([name, at]) => (name === "clock" ? null : `${name} at ${count(at)}`)).filter(Boolean);
  return parts.length ? parts.join(", ") : "the beginning";
};
/** "payments/0 from 30 to 35" for every source that has moved. */
function slices({ start, end }) {
  const moved = Object.keys(end).filter((name) => name !== "clock" && end[name] !== (start[name] ?? 0));
  return moved.length ? moved.map((name) => `${name} from ${count(start[name] ?? 0)} to ${count(end[name])}`).join(", ") : "no new input";
}
const milliseconds = (seconds) => (seconds >= 1 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds * 1000)} ms`);
const clock = (at) => {
  const date = new Date(at * 1000);
  return `${date.toLocaleTimeString(undefined, { hour12: false })}.${String(date.getMilliseconds()).padStart(3, "0")}`;
};
