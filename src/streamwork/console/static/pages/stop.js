// Stops a job, after a question. Where actions are not allowed, the button says how they would be.

import { Cli, Confirm, html, useState } from "../core/parts.js";
import { announce } from "../core/announce.js";
import { api, jobPath } from "../core/api.js";
import { quote } from "../core/shell.js";

export function StopButton({ job, session }) {
  const [asking, setAsking] = useState(false);
  const [drain, setDrain] = useState(false);
  if (!job.status.running) return null;
  const stop = async () => {
    await api(jobPath(job.job, "stop"), { method: "POST", body: { drain, timeout: "60s" } });
    announce(`Job ${job.job} stops after the checkpoint in flight`);
  };
  return html`<div>
    <button type="button" class="button" id="stop" onClick=${() => setAsking(true)}>Stop …</button>
    ${
      asking &&
      html`<${Confirm} title=${`Stop ${job.job}?`} yes="Stop" danger onYes=${stop} onClose=${() => setAsking(false)} blocked=${!session.actions}>
      <p>The checkpoint in flight is completed first. The next start goes on from there.</p>
      <p><label class="check"><input type="checkbox" checked=${drain} onChange=${(event) => setDrain(event.target.checked)} /> Process all input that is there first</label></p>
      <${Cli} command=${`streamwork stop --root ${quote(job.root)} ${quote(job.job)}${drain ? " --drain" : ""}`} />
    </${Confirm}>`
    }
  </div>`;
}
