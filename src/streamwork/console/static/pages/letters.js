// Dead letters: events that failed permanently, why, and their replay.

import { Card, Chip, Cli, Confirm, Facts, Table, Trouble, html, useState } from "../core/parts.js";
import { announce } from "../core/announce.js";
import { api, jobPath, useJson } from "../core/api.js";
import { count, plural } from "../core/format.js";
import { jobLink, link } from "../core/route.js";
import { quote } from "../core/shell.js";

const PAGE = 100;

export function Letters({ job, name, route, session }) {
  const component = route.query.component ?? "";
  const [asking, setAsking] = useState(null);
  const [replays, setReplays] = useState(0);
  const counts = job.status.dead_letters;
  const query = new URLSearchParams({ limit: String(PAGE), ...(component ? { component } : {}) });
  const found = useJson(`${jobPath(name, "dead-letters")}?${query}`, `${counts.count} ${counts.replayed} ${replays}`);
  const open = counts.count - counts.replayed;
  const replay = async (body, said) => {
    await api(jobPath(name, "dead-letters", "replay"), { method: "POST", body });
    setReplays((before) => before + 1);
    announce(said);
  };
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return html`<p class="quiet">Reading dead letters …</p>`;
  const rows = found.data.dead_letters;
  const all = { ids: null, body: { all: true, ...(component ? { component } : {}) } };
  const aside =
    open > 0 && html`<button type="button" class="button tiny" onClick=${() => setAsking(all)}>Replay all …</button>`;
  const filter = Object.keys(counts.by_component).length > 1 || component;
  return html`<div class="stack">
    ${counts.problem && html`<p class="note bad">${counts.problem}</p>`}
    ${route.query.id && html`<${Letter} name=${name} id=${route.query.id} ask=${setAsking} />`}
    <${Card} title="Dead letters" aside=${aside} footer=${html`<${Cli} command=${found.data.cli} />`}>
      <div class="stack-s">
        <p class="quiet">${counts.count ? `${plural(counts.count, "event")} failed permanently; ${count(counts.replayed)} replayed.` : "No event has failed permanently."}</p>
        ${
          filter &&
          html`<nav class="row small" aria-label="Dead letters by component">
          <a class="pick" href=${jobLink(name, "letters")} aria-current=${component ? null : "true"}>all</a>
          ${Object.entries(counts.by_component).map(([one, number]) => html`<a key=${one} class="pick" href=${link(["jobs", name, "letters"], { component: one })} aria-current=${component === one ? "true" : null}>${one} ${count(number)}</a>`)}</nav>`
        }
        ${
          rows.length > 0 &&
          html`<${Table} caption="Dead letters, newest checkpoint first" rows=${rows} rowKey=${(one) => one.id} columns=${[
            {
              head: "Id",
              row: true,
              wrap: true,
              cell: (one) =>
                html`<a class="mono" href=${link(["jobs", name, "letters"], { component, id: one.id })}>${one.id}</a>`,
            },
            {
              head: "Component",
              wrap: true,
              cell: (one) => html`<a href=${jobLink(name, "components", one.component)}>${one.component}</a>`,
            },
            {
              head: "Epoch",
              number: true,
              cell: (one) => html`<a href=${jobLink(name, "epochs", one.epoch)}>${one.epoch}</a>`,
            },
            { head: "Error", wrap: true, cell: (one) => one.error },
            { head: "Replayed", cell: (one) => (one.replayed ? "yes" : one.to ? "no" : "cannot be") },
          ]} />`
        }
        ${found.data.next && html`<p class="small quiet">The newest ${PAGE} are shown; the command lists all.</p>`}
      </div>
    </${Card}>
    ${
      asking &&
      html`<${Confirm} title=${asking.ids ? "Replay this event?" : `Replay ${component ? `all of ${component}` : "all dead letters"}?`} yes="Replay" blocked=${!session.actions}
        onYes=${() => replay(asking.body, "Replay requested")} onClose=${() => setAsking(null)}>
      <p>The events are put into the inbox of the job, which processes them again from the component that failed. Fix the cause first.</p>
      <${Cli} command=${`streamwork dead-letters replay --root ${quote(job.root)} ${quote(name)} ${asking.ids ? asking.ids.map(quote).join(" ") : component ? `--component ${quote(component)}` : "--all"}`} />
    </${Confirm}>`
    }
  </div>`;
}

function Letter({ name, id, ask }) {
  const found = useJson(`${jobPath(name, "dead-letters", "one")}?${new URLSearchParams({ id })}`);
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!found.data) return null;
  const one = found.data;
  const event = typeof one.event === "string" ? one.event : JSON.stringify(one.event, null, 2);
  const aside = html`<div class="row">${one.replayed && html`<${Chip} tone="good">replayed</${Chip}>`}
    ${!one.replayed && one.to && html`<button type="button" class="button tiny" onClick=${() => ask({ ids: [id], body: { ids: [id] } })}>Replay …</button>`}</div>`;
  return html`<${Card} title=${id} id="letter" aside=${aside} footer=${one.cli && html`<${Cli} command=${one.cli} />`}><div class="stack-s">
    <${Facts} items=${[
      ["Error", one.error],
      [
        "Component",
        html`<a href=${jobLink(name, "components", one.component)}>${one.component}${one.instance >= 0 ? `[${one.instance}]` : ""}</a>`,
      ],
      ["Epoch", html`<a href=${jobLink(name, "epochs", one.epoch)}>${one.epoch}</a>`],
      ["Attempts", count(one.attempts)],
    ]} />
    <pre class="text" tabindex="0" aria-label="The event">${event}</pre>
  </div></${Card}>`;
}
