// Savepoints: copies of a checkpoint that a person keeps.

import { Card, Chip, Cli, Facts, Table, Trouble, html, useState, READ_ONLY } from "../core/parts.js";
import { announce } from "../core/announce.js";
import { api, jobPath, useJson } from "../core/api.js";
import { bytes, clock, count, plural } from "../core/format.js";
import { jobLink } from "../core/route.js";
import { quote } from "../core/shell.js";

const TONES = { complete: "good", "half-made": "warn", damaged: "bad" };

export function Savepoints({ job, name, route, session }) {
  const [made, setMade] = useState(0);
  const found = useJson(jobPath(name, "savepoints"), made);
  const wanted = route.path[3];
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return html`<p class="quiet">Reading savepoints …</p>`;
  return html`<div class="stack">
    ${wanted && html`<${One} name=${name} wanted=${wanted} />`}
    <${Card} title="Savepoints" footer=${html`<${Cli} command=${found.data.cli} />`}>
      <${Table} caption="Savepoints, newest first" rows=${[...found.data.savepoints].reverse()} rowKey=${(one) => one.name} empty="This job has no savepoint." columns=${[
        {
          head: "Name",
          row: true,
          wrap: true,
          cell: (one) => html`<a href=${jobLink(name, "savepoints", one.name)}>${one.name}</a>`,
        },
        { head: "State", cell: (one) => html`<${Chip} tone=${TONES[one.state]}>${one.state}</${Chip}>` },
        { head: "Checkpoint", number: true, cell: (one) => count(one.checkpoint) },
        { head: "Created", cell: (one) => clock(one.created) },
        { head: "Rows", number: true, cell: (one) => count(one.rows) },
        { head: "Size", number: true, cell: (one) => bytes(one.bytes) },
        { head: "Note", wrap: true, cell: (one) => one.problem || one.note || "" },
      ]} />
    </${Card}>
    <${Create} job=${job} name=${name} session=${session} onMade=${() => setMade((before) => before + 1)} />
  </div>`;
}

function Create({ job, name, session, onMade }) {
  const [given, setGiven] = useState({ name: "", note: "" });
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const set = (field) => (event) => setGiven({ ...given, [field]: event.target.value });
  const create = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await api(jobPath(name, "savepoints"), { method: "POST", body: given });
      announce(`Savepoint ${given.name} created`);
      setGiven({ name: "", note: "" });
      onMade();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  const command = `streamwork savepoint create --root ${quote(job.root)} ${quote(name)} --name ${quote(given.name || "NAME")}${given.note ? ` --note ${quote(given.note)}` : ""}`;
  return html`<${Card} title="Create a savepoint" footer=${html`<${Cli} command=${command} />`}>
    <form class="stack-s" onSubmit=${create}>
      <p class="quiet">It copies the next checkpoint. The job runs on.</p>
      <div class="form">
        <div class="field grow"><label for="savepoint-name">Name</label><input id="savepoint-name" type="text" required autocomplete="off" spellcheck="false" value=${given.name} onInput=${set("name")} /></div>
        <div class="field grow"><label for="savepoint-note">Note</label><input id="savepoint-note" type="text" autocomplete="off" value=${given.note} onInput=${set("note")} /></div>
        <button class="button main" type="submit" disabled=${busy || !session.actions}>${busy ? "Creating …" : "Create"}</button>
      </div>
      ${!session.actions && html`<p class="note">${READ_ONLY}</p>`}
      <${Trouble} error=${error} />
    </form>
  </${Card}>`;
}

function One({ name, wanted }) {
  const found = useJson(jobPath(name, "savepoints", wanted));
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return null;
  const one = found.data.savepoint ?? found.data;
  const info = one.info ?? one;
  const files = Object.entries(one.files ?? {});
  return html`<${Card} title=${info.name ?? wanted} id="savepoint" footer=${found.data.cli && html`<${Cli} command=${found.data.cli} />`}><div class="stack">
    <${Facts} items=${[
      ["State", info.state],
      ["Note", info.note],
      ["Checkpoint", info.checkpoint],
      ["Created", clock(info.created)],
      ["By", info.by],
      ["Size", info.bytes !== undefined ? `${bytes(info.bytes)}, ${plural(info.rows ?? 0, "row")}` : ""],
      ["Semantics", one.semantics],
      ["Written by", one.written_by],
      ["Path", html`<span class="mono">${info.path}</span>`],
      ["Manifest's SHA-256", one.manifest_sha256 && html`<span class="mono">${one.manifest_sha256}</span>`],
      ["Problem", info.problem],
    ]} />
    ${
      Object.keys(one.positions ?? {}).length > 0 &&
      html`<section><h3>Positions</h3><${Table} caption="Positions of the savepoint" rows=${Object.entries(one.positions)} rowKey=${([partition]) => partition} columns=${[
        { head: "Partition", row: true, wrap: true, cell: ([partition]) => partition },
        { head: "Position", number: true, cell: ([, at]) => count(at) },
      ]} /></section>`
    }
    ${
      files.length > 0 &&
      html`<section><h3>Files</h3><${Table} caption="Files of the savepoint" rows=${files} tall=${files.length > 12} rowKey=${([path]) => path} columns=${[
        { head: "Path", row: true, wrap: true, cell: ([path]) => html`<span class="mono">${path}</span>` },
        { head: "Bytes", number: true, cell: ([, size]) => count(size) },
      ]} /></section>`
    }
  </div></${Card}>`;
}
