// The picture of one frame: boxes for instances and sinks, channels with what waits in them, blocked inputs.

import { html, useLayoutEffect, useRef } from "./lib/htm-preact.js";

const LINE = 17;
const TOKEN = 52; // between two tokens on a channel
const WIDE = { box: 196, flow: 400, last: 96, gap: 40, sink: 190 };

/** Where everything stands. Columns become rows where there is little room. */
export function arrange(playback, width) {
  const { places, edges, sinks } = playback.scene;
  const columns = Math.max(...places.map((one) => one.column)) + 1;
  const names = Object.keys(sinks);
  const lines = Math.max(1, ...playback.frames.flatMap((frame) => places.map((one) => Object.keys(frame.places[one.id].state).length)));
  const height = 34 + lines * LINE + 46;
  const narrow = width < 760;
  const boxes = new Map();
  if (narrow) {
    for (const one of places) {
      const beside = places.filter((each) => each.column === one.column).length;
      const room = (width - 12 * (beside - 1)) / beside;
      boxes.set(one.id, { x: one.row * (room + 12), y: one.column * (height + 210), width: room, height });
    }
    const top = columns * (height + 210) - 130;
    names.forEach((name, at) => boxes.set(`sink ${name}`, { x: (at * width) / names.length, y: top, width: width / names.length - 8, height: 126 }));
    return { boxes, edges: ports(edges, boxes, true), width, height: top + 130, narrow };
  }
  const spare = width - (columns * WIDE.box + WIDE.last + WIDE.sink);
  const flow = Math.max(220, Math.min(WIDE.flow, columns > 1 ? spare / (columns - 1) : 0));
  for (const one of places) boxes.set(one.id, { x: one.column * (WIDE.box + flow), y: one.row * (height + WIDE.gap), width: WIDE.box, height });
  const bottom = Math.max(...[...boxes.values()].map((one) => one.y + one.height));
  const left = columns * WIDE.box + (columns - 1) * flow + WIDE.last;
  const tall = Math.min(bottom / names.length - 12, 230);
  names.forEach((name, at) => boxes.set(`sink ${name}`, { x: left, y: (bottom * (at + 0.5)) / names.length - tall / 2, width: WIDE.sink, height: tall }));
  return { boxes, edges: ports(edges, boxes, false), width: left + WIDE.sink, height: bottom, narrow };
}

/** Each channel leaves and enters its boxes at places of its own. */
function ports(edges, boxes, narrow) {
  const share = (one, end) => {
    const same = edges.filter((each) => each[end] === one[end]);
    return (same.indexOf(one) + 1) / (same.length + 1);
  };
  return new Map(edges.map((one) => {
    const from = boxes.get(one.sender);
    const to = boxes.get(one.receiver);
    const start = narrow ? { x: from.x + from.width * share(one, "sender"), y: from.y + from.height } : { x: from.x + from.width, y: from.y + from.height * share(one, "sender") };
    const end = narrow ? { x: to.x + to.width * share(one, "receiver"), y: to.y } : { x: to.x, y: to.y + to.height * share(one, "receiver") };
    const length = Math.hypot(end.x - start.x, end.y - start.y);
    return [one.id, { ...one, start, end, length, dx: (end.x - start.x) / length, dy: (end.y - start.y) / length }];
  }));
}

/** The place of the n-th item of a channel; the first one is next to the receiver. */
function spot(edge, n, narrow) {
  const room = edge.length - 60;
  const back = Math.min(34 + n * (narrow ? 34 : TOKEN), room);
  return { x: edge.end.x - edge.dx * back, y: edge.end.y - edge.dy * back };
}

/** `counts`: the checkpoints that have a manifest; the files of others count for nothing. */
export function Scene({ playback, plan, frame, before, counts, speed, label }) {
  const shown = [];
  for (const [id, tokens] of Object.entries(frame.edges)) {
    const edge = plan.edges.get(id);
    tokens.forEach((token, n) => shown.push({ token, edge, at: spot(edge, n, plan.narrow), leaves: false }));
  }
  const there = new Set(shown.map((one) => one.token.number));
  for (const [id, tokens] of Object.entries(before?.edges ?? {})) {
    const edge = plan.edges.get(id);
    const goes = frame.kind !== "crash";
    tokens.forEach((token, n) => {
      if (!there.has(token.number)) shown.push({ token, edge, at: goes ? { x: edge.end.x + edge.dx * 40, y: edge.end.y + edge.dy * 40 } : spot(edge, n, plan.narrow), from: spot(edge, n, plan.narrow), leaves: true });
    });
  }
  const blocked = new Set(Object.values(frame.places).flatMap((one) => one.blocked));
  return html`<svg class=${`scene ${frame.kind}`} viewBox=${`-4 -4 ${plan.width + 8} ${plan.height + 8}`} width="100%" role="img" aria-label=${label}>
    ${Object.entries(playback.scene.sinks).flatMap(([sink, writers]) => writers.map((one) => html`<path key=${`${one} ${sink}`} class="writes" d=${between(plan.boxes.get(one), plan.boxes.get(`sink ${sink}`), plan.narrow)} />`))}
    ${[...plan.edges.values()].map((edge) => html`<${Channel} key=${edge.id} edge=${edge} blocked=${blocked.has(edge.id)} active=${edge.id === frame.edge} narrow=${plan.narrow} />`)}
    ${playback.scene.places.map((one) => html`<${Box} key=${one.id} place=${one} at=${plan.boxes.get(one.id)} view=${frame.places[one.id]} frame=${frame} counts=${counts} />`)}
    ${Object.keys(playback.scene.sinks).map((name) => html`<${Sink} key=${name} name=${name} at=${plan.boxes.get(`sink ${name}`)} view=${frame.sinks[name]} active=${frame.kind === "commit"} />`)}
    ${shown.map((one) => html`<${Token} key=${one.token.number} ...${one} speed=${speed} />`)}
  </svg>`;
}

const between = (from, to, narrow) =>
  narrow ? `M${from.x + from.width / 2} ${from.y + from.height}L${to.x + to.width / 2} ${to.y}` : `M${from.x + from.width} ${from.y + from.height / 2}L${to.x} ${to.y + to.height / 2}`;

function Channel({ edge, blocked, active, narrow }) {
  const { start, end, dx, dy } = edge;
  const side = dx < 0 ? 1 : -1; // away from what waits
  const bar = { x: end.x - dx * 12, y: end.y - dy * 12 };
  return html`<g class=${`channel${blocked ? " blocked" : ""}${active ? " active" : ""}`}>
    <line x1=${start.x} y1=${start.y} x2=${end.x} y2=${end.y} />
    ${blocked
      ? html`<line class="bar" x1=${bar.x - dy * 17} y1=${bar.y + dx * 17} x2=${bar.x + dy * 17} y2=${bar.y - dx * 17} />
        <text x=${bar.x + (narrow ? side * 22 : 4)} y=${bar.y + (narrow ? 2 : dy > 0.02 ? -28 : -24)} text-anchor=${narrow && side > 0 ? "start" : "end"}>blocked</text>`
      : html`<path class="tip" d="M0 0L-9 -5L-9 5z" transform=${`translate(${end.x} ${end.y}) rotate(${(Math.atan2(dy, dx) * 180) / Math.PI})`} />`}
  </g>`;
}

function Box({ place, at, view, frame, counts }) {
  const state = Object.entries(view.state);
  const stored = view.snapshot && Object.entries(view.snapshot.state).map(([key, value]) => `${key} ${value}`).join(", ");
  const gone = frame.kind === "crash";
  const valid = view.snapshot !== null && counts.has(view.snapshot.epoch);
  return html`<g class=${`box${place.is_source ? " source" : ""}${frame.place === place.id ? " active" : ""}${gone ? " gone" : ""}`} transform=${`translate(${at.x} ${at.y})`}>
    <rect class="frame" width=${at.width} height=${at.height} rx="10" />
    <text class="title" x="12" y="22">${place.id}</text>
    <text class="kind" x=${at.width - 12} y="22" text-anchor="end">${place.is_source ? "source" : "instance"}</text>
    ${state.length
      ? state.map(([key, value], n) => html`<text key=${key} class="state" x="12" y=${44 + n * LINE}>${key} <tspan class="value">${value}</tspan></text>`)
      : html`<text class="quiet" x="12" y="44">${gone ? "memory is lost" : "no state yet"}</text>`}
    <g class=${`stored${valid ? "" : view.snapshot ? " loose" : " none"}`} transform=${`translate(0 ${at.height - 40})`}>
      <path class="shelf" d=${`M0 0H${at.width}V30a10 10 0 0 1 -10 10H10a10 10 0 0 1 -10 -10z`} />
      <text x="12" y="16">${valid ? `on disk: checkpoint ${view.snapshot.epoch}` : view.snapshot ? `on disk for ${view.snapshot.epoch}, no manifest` : "nothing on disk yet"}</text>
      <text class="what" x="12" y="32">${stored ? fitted(stored, at.width - 24) : view.snapshot ? "empty" : ""}</text>
    </g>
  </g>`;
}

function Sink({ name, at, view, active }) {
  const room = Math.max(1, Math.floor((at.height - 72) / LINE));
  return html`<g class=${`box sink${active ? " active" : ""}`} transform=${`translate(${at.x} ${at.y})`}>
    <rect class="frame" width=${at.width} height=${at.height} rx="10" />
    <text class="title" x="12" y="22">${name}</text><text class="kind" x=${at.width - 12} y="22" text-anchor="end">sink</text>
    <text class="state" x="12" y="42">${view.checkpoint ? `committed: checkpoint ${view.checkpoint}` : "nothing committed"}</text>
    <text class=${`staged${view.staged ? "" : " none"}`} x="12" y="60">${view.staged ? `staged, not visible: ${view.staged}` : "nothing staged"}</text>
    ${view.rows.slice(-room).map((row, n) => html`<text key=${n} class="row" x="12" y=${80 + n * LINE}>${n === 0 && view.rows.length > room ? `… ${view.rows.length} rows, the last:` : row}</text>`)}
  </g>`;
}

/** An item of a channel. It moves from where it was, or from its sender. */
function Token({ token, edge, at, from, leaves, speed }) {
  const node = useRef(null);
  const last = useRef(from ?? { x: edge.start.x, y: edge.start.y });
  useLayoutEffect(() => {
    const was = last.current;
    last.current = at;
    if (!speed || (was.x === at.x && was.y === at.y && !leaves)) return;
    const move = (one) => `translate(${one.x}px, ${one.y}px)`;
    const steps = leaves ? [{ transform: move(was), opacity: 1 }, { transform: move(at), opacity: 0 }] : [{ transform: move(was) }, { transform: move(at) }];
    const running = node.current.animate(steps, { duration: speed, easing: "ease-in-out", fill: "none" });
    return () => running.cancel();
  }, [at.x, at.y, leaves, token.number]);
  const parity = token.epoch % 2 ? "odd" : "even";
  const size = Math.max(34, token.label.length * 7.6 + 14);
  return html`<g ref=${node} class=${`token ${token.checkpoint ? "checkpoint" : "event"} ${parity}${leaves ? " leaves" : ""}`} style=${{ transform: `translate(${at.x}px, ${at.y}px)` }}>
    ${token.checkpoint
      ? html`<path d="M0 -19L16 0L0 19L-16 0z" /><text y="5">${token.label}</text>`
      : html`<rect x=${-size / 2} y="-12" width=${size} height="24" rx="12" /><text y="4.5">${token.label}</text>`}
  </g>`;
}

const fitted = (text, width) => (text.length * 6.4 <= width ? text : `${text.slice(0, Math.max(1, Math.floor(width / 6.4) - 1))}…`);
