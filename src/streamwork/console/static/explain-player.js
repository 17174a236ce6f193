// A small job, played in the simulator: play, pause, step, scrub, crash at any point, and the same frames as a table.

import { Cli, Trouble, html, useEffect, useRef, useState } from "./core/parts.js";
import { useWidth } from "./charts/scale.js";
import { Scene, arrange } from "./explain-scene.js";

const SPEEDS = [["slow", 2600], ["normal", 1500], ["fast", 700]];
const DRIVER = [["plan", "planned"], ["report", "all reported"], ["prepare", "prepared"], ["commit", "committed"], ["complete", "completed"]];
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export function Player({ api }) {
  const [wish, setWish] = useState({ seed: 1, crash: [], at: 0 });
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let left = false;
    const crash = wish.crash.length ? `&crash=${wish.crash.join(",")}` : "";
    api(`explain/playback?seed=${wish.seed}${crash}`).then(
      (data) => { if (!left) { setFound({ data, at: Math.min(wish.at, data.frames.length - 1) }); setError(null); } },
      (problem) => !left && setError(problem),
    );
    return () => { left = true; };
  }, [wish]);
  return html`<section class="card player" aria-labelledby="player-title">
    <header><h2 id="player-title">How the instances agree on a point: alignment</h2></header>
    <div class="body stack">
      <p class="measure">Two shops sell tea, milk, rice and salt. Two instances count the pieces of each item. Each shop puts
        a${" "}<em>checkpoint event</em> (the diamond) behind the last sale of its slice. An instance that gets it on one input blocks
        this input until it has come on the other one too: so both shops are cut at the same checkpoint. This is a real run of the
        engine in the simulator; the seed chooses the schedule.</p>
      <${Trouble} error=${error} />
      ${found && html`<${Deck} key=${`${found.data.seed} ${found.data.crash_at}`} playback=${found.data} first=${found.at} wish=${wish} setWish=${setWish} />`}
    </div>
    ${found && html`<footer><${Cli} command=${found.data.cli} /></footer>`}
  </section>`;
}

function Deck({ playback, first, wish, setWish }) {
  const [at, setAt] = useState(first);
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const [box, width] = useWidth(1100);
  const end = playback.frames.length - 1;
  const frame = playback.frames[at];
  const go = (to) => { setPlaying(false); setAt(Math.max(0, Math.min(end, to))); };
  useEffect(() => {
    if (!playing) return undefined;
    if (at >= end) { setPlaying(false); return undefined; }
    const timer = setTimeout(() => setAt(at + 1), SPEEDS[speed][1]);
    return () => clearTimeout(timer);
  }, [playing, at, speed]);
  const play = () => { if (at >= end) setAt(0); setPlaying(!playing); };
  const pressed = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA|SUMMARY)$/.test(event.target.tagName)) return;
    const act = { ArrowRight: () => go(at + 1), ArrowLeft: () => go(at - 1), Home: () => go(0), End: () => go(end) }[event.key]
      ?? (event.key === " " && event.target.tagName !== "BUTTON" ? play : null);
    if (act) { event.preventDefault(); act(); }
  };
  const plan = arrange(playback, width);
  const before = at > 0 ? playback.frames[at - 1] : null;
  const counts = new Set(playback.frames.slice(0, at + 1).filter((one) => one.kind === "prepare" || one.kind === "start").map((one) => one.epoch));
  const nextOf = (kind) => playback.frames.findIndex((one, place) => place > at && one.kind === kind);
  const block = nextOf("block");
  return html`<div class="deck stack-s" onKeyDown=${pressed}>
    <${Progress} frames=${playback.frames} at=${at} places=${playback.scene.places} />
    <div class="screen" ref=${box} tabindex="0" role="group" aria-label="The run; arrow keys step, space plays">
      <${Scene} playback=${playback} plan=${plan} frame=${frame} before=${before} counts=${counts} speed=${still() ? 0 : Math.min(520, SPEEDS[speed][1] * 0.6)} label=${described(playback, frame)} />
    </div>
    <div class=${`caption ${frame.kind}`} aria-live=${playing ? "off" : "polite"}>
      <p class="what">${frame.caption}</p><p class="why">${frame.why}</p>
    </div>
    <div class="controls row">
      <button type="button" class="button" aria-label="First frame" disabled=${at === 0} onClick=${() => go(0)}>|←</button>
      <button type="button" class="button" disabled=${at === 0} onClick=${() => go(at - 1)}>← Back</button>
      <button type="button" class="button main" onClick=${play} aria-pressed=${String(playing)}>${playing ? "Pause" : "Play"}</button>
      <button type="button" class="button" disabled=${at === end} onClick=${() => go(at + 1)}>Step →</button>
      <button type="button" class="button" disabled=${block < 0} onClick=${() => go(block)}>Next blocked input</button>
      <label class="scrub"><span class="unseen">Frame</span>
        <input type="range" min="0" max=${end} value=${at} aria-valuetext=${`${at + 1} of ${end + 1}: ${frame.caption}`} onInput=${(event) => go(Number(event.target.value))} /></label>
      <span class="small quiet number">${at + 1} of ${end + 1}</span>
    </div>
    <div class="row wishes">
      <div class="switch" role="group" aria-label="Speed">${SPEEDS.map(([name], place) => html`<button type="button" key=${name} aria-pressed=${String(place === speed)} onClick=${() => setSpeed(place)}>${name}</button>`)}</div>
      <button type="button" class="button tiny" onClick=${() => setWish({ seed: wish.seed + 1, crash: [], at: 0 })}>Another schedule (seed ${wish.seed + 1})</button>
      <button type="button" class="button tiny danger" disabled=${!frame.crash_at || wish.crash.length >= 3} onClick=${() => setWish({ ...wish, crash: [...wish.crash, frame.crash_at], at: at + 1 })}>Crash the machine here</button>
      ${wish.crash.length > 0 && html`<button type="button" class="button tiny" onClick=${() => setWish({ ...wish, crash: [], at: 0 })}>Without crashes</button>`}
    </div>
    <details><summary>All frames as a table</summary>
      <div class="scroll tall" role="region" aria-label="All frames" tabindex="0"><table class="frames">
        <thead><tr><th scope="col" class="n">Frame</th><th scope="col">What happens</th><th scope="col">Checkpoint</th><th scope="col">Blocked inputs</th></tr></thead>
        <tbody>${playback.frames.map((one) => html`<tr key=${one.number} class=${`${one.kind}${one.number === at ? " present" : ""}`} aria-current=${one.number === at ? "true" : null}>
          <td class="n"><button type="button" aria-label=${`Show frame ${one.number + 1}`} onClick=${() => go(one.number)}>${one.number + 1}</button></td>
          <th scope="row" class="wrap">${one.caption}</th><td class="n">${one.epoch || ""}</td><td class="wrap">${blockedOf(playback, one)}</td></tr>`)}</tbody>
      </table></div></details>
  </div>`;
}

/** How far the newest checkpoints are, as the driver sees them. */
function Progress({ frames, at, places }) {
  const past = frames.slice(0, at + 1);
  const life = past.map((one) => one.kind).lastIndexOf("crash") + 1;
  const epochs = [...new Set(past.filter((one) => one.epoch && (one.number >= life || DRIVER.slice(2).some(([kind]) => kind === one.kind))).map((one) => one.epoch))].sort((a, b) => a - b).slice(-2);
  const frame = frames[at];
  const has = (epoch, kind) => past.some((one) => one.epoch === epoch && one.kind === kind);
  return html`<div class="progress" aria-label="Checkpoints in progress">${epochs.length === 0 && html`<p class="quiet small">${frame.kind === "crash" ? "The driver is gone." : "No checkpoint is planned yet."}</p>`}
    ${epochs.map((epoch) => {
      const reported = places.filter((one) => (frame.places[one.id].snapshot?.epoch ?? 0) >= epoch).length;
      return html`<div key=${epoch} class=${epoch % 2 ? "odd" : "even"}><b>Checkpoint ${epoch}</b><ol>${DRIVER.map(([kind, text]) => {
        const done = has(epoch, kind);
        const said = kind === "report" && !done ? `${reported} of ${places.length} reported` : text;
        return html`<li key=${kind} class=${done ? "done" : "open"}><span class="unseen">${done ? "done: " : "not yet: "}</span>${said}</li>`;
      })}</ol></div>`;
    })}</div>`;
}

function blockedOf(playback, frame) {
  const edges = new Map(playback.scene.edges.map((one) => [one.id, one]));
  return Object.values(frame.places).flatMap((one) => one.blocked).map((id) => `${edges.get(id).sender} to ${edges.get(id).receiver}`).join(", ");
}

/** The picture in words, for a screen reader. */
function described(playback, frame) {
  const waiting = playback.scene.edges
    .map((edge) => [edge, frame.edges[edge.id] ?? []])
    .filter(([, tokens]) => tokens.length)
    .map(([edge, tokens]) => `${edge.sender} to ${edge.receiver}: ${tokens.map((one) => (one.checkpoint ? `checkpoint event ${one.label}` : one.label)).join(", ")}`);
  const states = playback.scene.places.map((one) => `${one.id}: ${Object.entries(frame.places[one.id].state).map(([key, value]) => `${key} ${value}`).join(", ") || "empty"}`);
  const blocked = blockedOf(playback, frame);
  return `Waiting: ${waiting.join("; ") || "nothing"}. Blocked: ${blocked || "none"}. State: ${states.join("; ")}.`;
}
