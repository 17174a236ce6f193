// The state of a job: keys in order, one key, and SQL over all components. Each answer names its checkpoint.

import { Card, Cli, Table, Trouble, html, useEffect, useState } from "../core/parts.js";
import { announce } from "../core/announce.js";
import { api, jobPath, useJson } from "../core/api.js";
import { cell, count, plural } from "../core/format.js";
import { setQuery } from "../core/route.js";
import { quote } from "../core/shell.js";
import { KeyForm, Origin, keyLink } from "./keys.js";

const PAGE = 25;

export function State({ job, name, route }) {
  const found = useJson(jobPath(name, "query", "state"), job.graph?.nodes.length);
  const components = found.data?.components ?? {};
  const names = Object.keys(components).sort();
  const chosen = names.includes(route.query.component) ? route.query.component : names[0];
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return html`<p class="quiet">Reading the state …</p>`;
  if (!names.length) return html`<p class="empty">No component of this job has keyed state.</p>`;
  const at = route.query.at ?? "";
  return html`<div class="stack">
    <${Card} title="By key"><div class="stack">
      <form class="form" onSubmit=${(event) => event.preventDefault()}>
        <div class="field grow"><label for="component">Component</label>
          <select id="component" value=${chosen} onChange=${(event) => setQuery(route, { ...route.query, component: event.target.value })}>
            ${names.map((one) => html`<option key=${one} value=${one} selected=${one === chosen}>${one}</option>`)}</select></div>
        <div class="field grow"><label for="at">At <span class="quiet">checkpoint:N or savepoint:NAME; empty: the newest</span></label>
          <input id="at" type="text" class="mono" autocomplete="off" spellcheck="false" value=${at} onChange=${(event) => setQuery(route, { ...route.query, at: event.target.value.trim() })} /></div>
      </form>
      <${KeyForm} key=${chosen} name=${name} component=${chosen} shape=${components[chosen]} at=${at} />
      <${Browse} key=${`${chosen} ${at}`} name=${name} component=${chosen} shape=${components[chosen]} at=${at} version=${job.status.checkpoint} />
    </div></${Card}>
    <${Sql} job=${job} name=${name} at=${at} route=${route} example=${example(chosen, components[chosen])} />
  </div>`;
}

const example = (component, shape) =>
  `SELECT ${[...Object.keys(shape.key), ...Object.keys(shape.record)]
    .slice(0, 3)
    .map((one) => `"${one}"`)
    .join(", ")}\nFROM "${component}"\nLIMIT 20`;

/** The keys in order, a page at a time. */
function Browse({ name, component, shape, at, version }) {
  const [prefix, setPrefix] = useState("");
  const first = Object.values(shape.key)[0] ?? "";
  const query = new URLSearchParams({ limit: String(PAGE), ...(prefix ? { prefix } : {}), ...(at ? { at } : {}) });
  const found = useJson(`${jobPath(name, "query", "range", component)}?${query}`, at ? 0 : version);
  const counted = useJson(
    `${jobPath(name, "query", "count", component)}?${new URLSearchParams(at ? { at } : {})}`,
    at ? 0 : version,
  );
  const rows = found.data?.rows ?? [];
  const fields = Object.keys(shape.record);
  return html`<div class="stack-s">
    <div class="row apart">
      <p class="small quiet">${counted.data ? plural(counted.data.count, "key") : ""}${found.data?.more ? `; the first ${PAGE} are shown` : ""}</p>
      ${
        /string/.test(first) &&
        html`<div class="field"><label for="prefix">Keys that begin with</label>
        <input id="prefix" type="search" class="mono" value=${prefix} onInput=${(event) => setPrefix(event.target.value)} /></div>`
      }
    </div>
    <${Trouble} error=${found.error} />
    ${
      found.data &&
      html`<${Table} caption=${`Keys of ${component}`} rows=${rows} rowKey=${(row) => JSON.stringify(row.key)} empty="No key." columns=${[
        {
          head: Object.keys(shape.key).join(" / "),
          row: true,
          wrap: true,
          cell: (row) =>
            html`<a class="mono" href=${keyLink(name, component, row.key, at)}>${Object.values(row.key).map(cell).join(" / ")}</a>`,
        },
        ...fields.map((field) => ({
          head: field,
          number: typeof rows[0]?.record[field] === "number",
          wrap: true,
          cell: (row) => html`<span class="mono">${cell(row.record[field])}</span>`,
        })),
      ]} /><${Origin} stamp=${found.data} />
    <${Cli} command=${`streamwork query ${quote(name)} ${quote(component)}${prefix ? ` --prefix ${quote(prefix)}` : " --limit 25"}${at ? ` --at ${quote(at)}` : ""} --json`} />`
    }
  </div>`;
}

function Sql({ job, name, at, route, example }) {
  const [text, setText] = useState(route.query.sql ?? example);
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const run = async (event) => {
    event?.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const found = await api(`${jobPath(name, "query", "sql")}${at ? `?${new URLSearchParams({ at })}` : ""}`, {
        method: "POST",
        body: { sql: text },
      });
      setAnswer(found);
      announce(`${plural(found.rows.length, "row")}`);
      setQuery(route, { ...route.query, sql: text });
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  useEffect(() => {
    if (route.query.sql) run();
  }, []);
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run(event);
  };
  return html`<${Card} title="By SQL" id="sql" footer=${html`<${Cli} command=${`streamwork query ${quote(name)} --sql ${quote(text.replace(/\s+/g, " ").trim())}${at ? ` --at ${quote(at)}` : ""} --json`} />`}>
    <form class="stack-s" onSubmit=${run}>
      <label for="statement">One SELECT in DuckDB's SQL; each component is a table. It runs in a process of its own, with limits.</label>
      <textarea id="statement" rows="4" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys}></textarea>
      <div class="row"><button class="button main" type="submit" disabled=${busy}>${busy ? "Running …" : "Run"}</button><span class="small quiet">Ctrl-Enter runs it, too.</span></div>
    </form>
    <${Trouble} error=${error} />
    ${
      answer &&
      html`<div class="stack-s" id="answer"><${Table} caption="Result" rows=${answer.rows} tall empty="No row." columns=${answer.columns.map(
        (column, at) => ({
          head: column.name,
          number: /int|double|float|decimal/.test(column.type),
          wrap: true,
          cell: (row) => html`<span class="mono">${cell(row[at])}</span>`,
        }),
      )} /><p class="small quiet">${count(answer.rows.length)} rows.</p><${Origin} stamp=${answer} /></div>`
    }
  </${Card}>`;
}
