// The components of a job and the channels between them. A component is a link to its page; the table twin lists the same.

import { html } from "../lib/htm-preact.js";
import { bytes, count, known, rate, short } from "../core/format.js";
import { arrange, curve } from "./layout.js";
import { useWidth } from "./scale.js";

/**
 * `nodes`: [{id, kind, rate, instances, keys, bytes, lag: {total, unit}, tone, note}]
 * `edges`: [{from, to, channel, rate, events, full, dropped}]
 */
export function Graph({ nodes, edges, to, label }) {
  const [box, width] = useWidth(1100);
  if (!nodes.length)
    return html`<div ref=${box}><p class="empty">The graph is known after the first checkpoint.</p></div>`;
  const plan = arrange(nodes, edges, width);
  const drawn = edges.filter((edge) => plan.places.has(edge.from) && plan.places.has(edge.to));
  return html`<div class="graph" ref=${box} style=${{ height: `${plan.height}px` }} role="group" aria-label=${label}>
    <svg width=${width} height=${plan.height} aria-hidden="true">
      <defs><marker id="tip" viewBox="0 0 8 8" refX="7.2" refY="4" markerWidth="7" markerHeight="7" orient="auto" markerUnits="userSpaceOnUse">
        <path class="tip" d="M0 0L8 4L0 8z" /></marker></defs>
      ${drawn.map(
        (
          edge,
        ) => html`<path key=${`${edge.from} ${edge.to} ${edge.channel}`} class=${`edge ${state(edge)}`} marker-end="url(#tip)"
        d=${curve(plan.places.get(edge.from), plan.places.get(edge.to), plan.across).d} />`,
      )}
      ${drawn.map((edge) => {
        const middle = curve(plan.places.get(edge.from), plan.places.get(edge.to), plan.across);
        return html`<g key=${`${edge.from} ${edge.to} ${edge.channel} text`}>${texts(edge).map(
          ([text, tone], at, all) =>
            html`<text key=${at} class=${`edge-text ${tone}`} x=${middle.x} y=${middle.y + 4 + (at - (all.length - 1) / 2) * 15}>${text}</text>`,
        )}</g>`;
      })}
    </svg>
    <ul>${nodes.map((node) => {
      const place = plan.places.get(node.id);
      return html`<li key=${node.id}><a class=${`node ${node.kind} ${node.tone ?? ""}`} href=${to(node.id)}
          style=${{ left: `${place.x}px`, top: `${place.y}px`, width: `${place.width}px`, height: `${place.height}px` }}>
        <span class="kind">${kindOf(node)}</span>
        <span class="name" title=${node.id}>${node.id}</span>
        <span class="rate">${rate(node.rate)}</span>
        <span class="more">${more(node)}</span>
      </a></li>`;
    })}</ul>
  </div>`;
}

const kindOf = (node) => `${node.kind}${node.instances > 1 ? ` × ${node.instances}` : ""}`;

export function more(node) {
  if (node.note) return node.note;
  if (node.lag?.total) return `${short(node.lag.total)} ${node.lag.unit} behind`;
  if (node.lag) return "caught up";
  if (known(node.keys) && (node.keys || node.bytes)) return `${short(node.keys)} keys, ${bytes(node.bytes)}`;
  return known(node.bytes) && node.bytes ? `state ${bytes(node.bytes)}` : "";
}

const state = (edge) => (edge.full ? "full" : edge.dropped ? "drops" : "");

function texts(edge) {
  const found = [];
  if (known(edge.rate)) found.push([rate(edge.rate), ""]);
  if (edge.full) found.push([`full: ${short(edge.events)} wait`, "warn"]);
  else if (edge.events) found.push([`${short(edge.events)} wait`, ""]);
  if (edge.dropped) found.push([`${count(edge.dropped)} dropped`, "bad"]);
  if (edge.channel && edge.channel !== "main" && !found.length) found.push([edge.channel, ""]);
  return found;
}
