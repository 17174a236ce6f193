// The page "How a checkpoint works": one real epoch of the job, step by step, and a small job that is played in the simulator.

import { html, render } from "./lib/htm-preact.js";
import { EpochSteps } from "./explain-epoch.js";
import { Player } from "./explain-player.js";

const SHEET = "/static/explain.css";

/** Draws into `element`. Gives a function that takes the page away. */
export async function mount(element, { job, api }) {
  await styled();
  render(html`<${Page} job=${job} api=${api} />`, element);
  return () => render(null, element);
}

const Page = ({ job, api }) => html`<div class="explain stack">
  <p class="lede small">A checkpoint is a point at which state, input and output agree.</p>
  <${EpochSteps} job=${job} api=${api} />
  <${Player} api=${api} />
</div>`;

/** The style of this page, loaded once. */
function styled() {
  if (document.querySelector(`link[href="${SHEET}"]`)) return Promise.resolve();
  return new Promise((done) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: SHEET, onload: done, onerror: done });
    document.head.append(link);
  });
}
