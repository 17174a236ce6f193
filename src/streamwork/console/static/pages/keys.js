// One key of a component's state, and the form that leads to it. A key has an address: the JSON object of its parts.

import { Card, Cli, Facts, Trouble, html, useState } from "../core/parts.js";
import { jobPath, useJson } from "../core/api.js";
import { cell, duration } from "../core/format.js";
import { link } from "../core/route.js";
import { quote } from "../core/shell.js";

export const keyLink = (name, component, key, at) =>
  link(["jobs", name, "components", component, "keys", JSON.stringify(key)], { at });

/** "int64" and "double" take numbers, the rest text. Text that is no number stays text: the server says what is wrong. */
export function typed(text, type) {
  if (
    /^(u?int|double|float|half)/.test(type) &&
    text.trim() !== "" &&
    Number.isFinite(Number(text)) &&
    Number.isSafeInteger(Math.trunc(Number(text)))
  )
    return Number(text);
  if (type === "bool") return text === "true";
  return text;
}

export function KeyForm({ name, component, shape, at }) {
  const found = useJson(shape ? null : jobPath(name, "query", "state"));
  const key = (shape ?? found.data?.components?.[component])?.key;
  const [parts, setParts] = useState({});
  if (found.error) return html`<${Trouble} error=${found.error} />`;
  if (!key) return null;
  const go = (event) => {
    event.preventDefault();
    location.hash = keyLink(
      name,
      component,
      Object.fromEntries(Object.entries(key).map(([part, type]) => [part, typed(parts[part] ?? "", type)])),
      at,
    ).slice(1);
  };
  return html`<form class="form" onSubmit=${go} aria-label=${`Key of ${component}`}>
    ${Object.entries(key).map(
      ([
        part,
        type,
      ]) => html`<div class="field grow" key=${part}><label for=${`key-${part}`}>${part} <span class="quiet">${type}</span></label>
      <input id=${`key-${part}`} type="text" class="mono" autocomplete="off" spellcheck="false" value=${parts[part] ?? ""} onInput=${(event) => setParts({ ...parts, [part]: event.target.value })} /></div>`,
    )}
    <button class="button" type="submit">Show its state</button>
  </form>`;
}

export function Key({ name, component, text, at, version }) {
  const key = parsed(text);
  const query = new URLSearchParams({ key_json: text, ...(at ? { at } : {}) });
  const found = useJson(key && `${jobPath(name, "query", "state", component)}?${query}`, at ? 0 : version);
  const title = key ? Object.values(key).map(cell).join(" / ") : text;
  const parts = key
    ? Object.values(key)
        .map((part) => quote(cell(part)))
        .join(" ")
    : "";
  return html`<${Card} title=${`${component}: ${title}`} id="key" footer=${key && html`<${Cli} command=${`streamwork query ${quote(name)} ${quote(component)} ${parts}${at ? ` --at ${quote(at)}` : ""} --json`} />`}>
    ${!key && html`<p class="note bad">The address does not hold a key: it must be a JSON object of the key's parts.</p>`}
    <${Trouble} error=${found.error} />
    ${
      found.data &&
      (found.data.record
        ? html`<${Facts} items=${Object.entries(found.data.record).map(([field, value]) => [field, html`<span class="mono">${cell(value)}</span>`])} />`
        : html`<p>There is no such key at this checkpoint.</p>`)
    }
    ${found.data && html`<${Origin} stamp=${found.data} />`}
  </${Card}>`;
}

/** Where an answer comes from. */
export const Origin = ({ stamp }) =>
  html`<p class="small quiet">At checkpoint ${stamp.epoch}${stamp.committed ? ", which every sink has" : ", not committed yet"}; written ${duration(stamp.age)} ago${stamp.regressed ? "; an earlier answer came from a checkpoint that no longer counts" : ""}.</p>`;

function parsed(text) {
  try {
    const found = JSON.parse(text);
    return found && typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}
