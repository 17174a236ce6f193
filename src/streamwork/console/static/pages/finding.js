// A verdict of the job, as `streamwork status` prints it.

import { Cli, html } from "../core/parts.js";
import { sentence, toneOf } from "../core/verdict.js";

/** One verdict: the sentence, what to do about it, and the command for that. */
export const Finding = ({ verdict, driver }) => html`<div class=${`finding ${toneOf(verdict, driver)}`}>
  <p class="kind">${verdict.kind}${verdict.component ? ` · ${verdict.component}${verdict.instance === null || verdict.instance === undefined ? "" : `[${verdict.instance}]`}` : ""}</p>
  <p class="says">${sentence(verdict.text, verdict.component)}</p>
  ${verdict.advice && html`<p class="advice">${sentence(verdict.advice)}</p>`}
  ${verdict.details?.length > 0 && html`<ul class="mono">${verdict.details.map((one, at) => html`<li key=${at}>${one}</li>`)}</ul>`}
  <${Cli} command=${verdict.command} label="command against it" />
</div>`;
