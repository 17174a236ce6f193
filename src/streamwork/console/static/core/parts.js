// The parts that pages are made of. All text goes in as text nodes: nothing here takes markup.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/htm-preact.js";
import { announce } from "./announce.js";

export { html, useEffect, useRef, useState };

export const Dot = ({ tone = "still" }) => html`<span class=${`dot ${tone}`} aria-hidden="true"></span>`;

export const Chip = ({ tone = "", dot = false, children }) =>
  html`<span class=${`chip ${tone}`}>${dot && html`<${Dot} tone=${tone} />`}${children}</span>`;

/** A command that does the same at a prompt, with a button that copies it. */
export function Cli({ command, label = "the same on the command line" }) {
  const [copied, setCopied] = useState(false);
  if (!command) return null;
  const copy = async () => {
    const done = await copyText(command);
    setCopied(done);
    announce(done ? "Command copied" : "The browser does not allow copying; select the command instead");
    if (done) setTimeout(() => setCopied(false), 1500);
  };
  return html`<div class="cli" role="group" aria-label=${label}>
    <code tabindex="0">${command}</code>
    <button type="button" onClick=${copy} aria-label=${`Copy command: ${command}`}>${copied ? "Copied" : "Copy"}</button>
  </div>`;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export function Card({ title, level = 2, aside, footer, children, id, label }) {
  const Heading = `h${level}`;
  return html`<section class="card" id=${id} aria-label=${label ?? title}>
    ${title && html`<header><${Heading}>${title}</${Heading}>${aside}</header>`}
    <div class="body">${children}</div>
    ${footer && html`<footer>${footer}</footer>`}
  </section>`;
}

/** A chart that can be seen as a table, with its command-line twin. `table` is a function that gives the twin. */
export function Chart({ title, cli, chart, table, note, level = 2, id }) {
  const [shown, setShown] = useState("chart");
  const aside = html`<div class="switch" role="group" aria-label=${`${title}: shown as`}>
    ${["chart", "table"].map(
      (
        one,
      ) => html`<button type="button" key=${one} aria-pressed=${String(shown === one)} onClick=${() => setShown(one)}>
        ${one === "chart" ? "Chart" : "Table"}
      </button>`,
    )}
  </div>`;
  return html`<${Card} title=${title} level=${level} aside=${aside} id=${id} footer=${cli && html`<${Cli} command=${cli} />`}>
    ${shown === "chart" ? chart() : table()}
    ${note && html`<p class="small quiet">${note}</p>`}
  </${Card}>`;
}

/** Columns: {head, cell(row), number, row (a row header), wrap}. The caption is for screen readers. */
export function Table({ caption, columns, rows, rowKey, tall = false, empty = "None." }) {
  const box = useRef(null);
  const [scrolls, setScrolls] = useState(false);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const look = () =>
      setScrolls(element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1);
    look();
    const watch = new ResizeObserver(look);
    watch.observe(element);
    watch.observe(element.firstElementChild);
    return () => watch.disconnect();
  }, [rows.length > 0]);
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const side = (column) => `${column.number ? "n" : ""}${column.wrap ? " wrap" : ""}`;
  return html`<div class=${`scroll ${tall ? "tall" : ""}`} ref=${box} role=${scrolls ? "region" : null}
      aria-label=${scrolls ? caption : null} tabindex=${scrolls ? "0" : null}>
    <table>
      <caption class="unseen">${caption}</caption>
      <thead><tr>${columns.map((one) => html`<th scope="col" key=${one.head} class=${side(one)}>${one.head}</th>`)}</tr></thead>
      <tbody>${rows.map(
        (row, at) => html`<tr key=${rowKey ? rowKey(row) : at}>
          ${columns.map((one) =>
            one.row
              ? html`<th scope="row" key=${one.head} class=${side(one)}>${one.cell(row)}</th>`
              : html`<td key=${one.head} class=${side(one)}>${one.cell(row)}</td>`,
          )}
        </tr>`,
      )}</tbody>
    </table>
  </div>`;
}

export const Figures = ({ items }) => html`<dl class="figures">
  ${items
    .filter(Boolean)
    .map(
      ([name, value, more]) =>
        html`<div key=${name}><dt>${name}</dt><dd>${value}${more ? html`<small>${more}</small>` : null}</dd></div>`,
    )}
</dl>`;

export const Facts = ({ items }) => html`<dl class="facts">
  ${items
    .filter((one) => one && one[1] !== null && one[1] !== undefined && one[1] !== "")
    .map(([name, value]) => html`<dt key=${`t-${name}`}>${name}</dt><dd key=${`d-${name}`}>${value}</dd>`)}
</dl>`;

/** An error of the server: its code, cause and action. */
export function Trouble({ error }) {
  if (!error) return null;
  return html`<div class="note bad" role="alert">
    <strong>${error.code ? `${error.code}: ` : ""}</strong>${error.cause || String(error)}${error.action ? ` — ${error.action}` : ""}
  </div>`;
}

export const READ_ONLY = "This console is read-only. Start it with --allow-actions, or use the command line.";

/** Asks before something is done. `onYes` gives a promise; its error stays in the dialog. `blocked`: actions are not allowed. */
export function Confirm({ title, children, yes, danger = false, blocked = false, onYes, onClose }) {
  const box = useRef(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    box.current.showModal();
  }, []);
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onYes();
      box.current?.close();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<dialog ref=${box} onClose=${onClose} aria-labelledby="confirm-title">
    <form onSubmit=${go} class="stack-s">
      <h2 id="confirm-title">${title}</h2>
      ${children}
      ${blocked && html`<p class="note">${READ_ONLY}</p>`}
      <${Trouble} error=${error} />
      <div class="row">
        <button type="button" class="button" onClick=${() => box.current.close()}>Cancel</button>
        <button type="submit" class=${`button ${danger ? "danger" : "main"}`} disabled=${busy || blocked}>${busy ? "Working …" : yes}</button>
      </div>
    </form>
  </dialog>`;
}
