// Where the components of a job are drawn: layers from sources to sinks, few crossings. Pure.

export const NODE = { width: 196, height: 108 };
const ACROSS = 84;
const DOWN = 26;
const BELOW = 58;
const BESIDE = 18;
const LEAST = 150;

/** id -> layer: one more than the last of its inputs. Cycles cannot occur in a job; one in the data ends the walk. */
export function layers(nodes, edges) {
  const inputs = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) if (inputs.has(edge.to) && inputs.has(edge.from)) inputs.get(edge.to).push(edge.from);
  const found = new Map();
  const walk = (id, open) => {
    if (found.has(id)) return found.get(id);
    if (open.has(id)) return 0;
    const before = inputs.get(id).map((from) => walk(from, new Set([...open, id])) + 1);
    found.set(id, Math.max(0, ...before));
    return found.get(id);
  };
  for (const node of nodes) walk(node.id, new Set());
  return found;
}

/** The ids of each layer, ordered by the mean place of their neighbours in the layer before. */
export function ordered(nodes, edges) {
  const layer = layers(nodes, edges);
  const rows = [];
  for (const node of nodes) (rows[layer.get(node.id)] ??= []).push(node.id);
  const place = new Map();
  rows.forEach((row, depth) => {
    if (depth) {
      const mean = (id) => {
        const from = edges.filter((edge) => edge.to === id && place.has(edge.from)).map((edge) => place.get(edge.from));
        return from.length ? from.reduce((sum, one) => sum + one, 0) / from.length : 0;
      };
      const means = new Map(row.map((id) => [id, mean(id)]));
      row.sort((one, other) => means.get(one) - means.get(other));
    }
    row.forEach((id, at) => place.set(id, at - (row.length - 1) / 2));
  });
  return rows.filter(Boolean);
}

/** {width, height, across, places: id -> {x, y, width, height}}. From left to right where there is room, else downwards. */
export function arrange(nodes, edges, room) {
  const rows = ordered(nodes, edges);
  const gap = rows.length > 1 ? Math.min(170, Math.floor((room - rows.length * NODE.width) / (rows.length - 1))) : 0;
  return gap >= ACROSS || rows.length === 1 ? sideways(rows, room, Math.max(gap, 0)) : downwards(rows, room);
}

function sideways(rows, room, gap) {
  const most = Math.max(...rows.map((row) => row.length));
  const height = most * NODE.height + (most - 1) * DOWN;
  const width = rows.length * NODE.width + (rows.length - 1) * gap;
  const left = Math.max(0, (room - width) / 2);
  const places = new Map();
  rows.forEach((row, depth) => {
    const top = (height - (row.length * NODE.height + (row.length - 1) * DOWN)) / 2;
    row.forEach((id, at) =>
      places.set(id, { x: left + depth * (NODE.width + gap), y: top + at * (NODE.height + DOWN), ...NODE }),
    );
  });
  return { width: room, height, across: true, places };
}

function downwards(rows, room) {
  const fits = Math.max(1, Math.floor((room + BESIDE) / (LEAST + BESIDE)));
  const places = new Map();
  let y = 0;
  for (const row of rows) {
    for (let from = 0; from < row.length; from += fits) {
      const part = row.slice(from, from + fits);
      const width = Math.min(NODE.width, (room - (part.length - 1) * BESIDE) / part.length);
      const left = (room - part.length * width - (part.length - 1) * BESIDE) / 2;
      part.forEach((id, at) => places.set(id, { x: left + at * (width + BESIDE), y, width, height: NODE.height }));
      y += NODE.height + (from + fits < row.length ? BESIDE : BELOW);
    }
  }
  return { width: room, height: Math.max(0, y - BELOW), across: false, places };
}

/** The curve from one box to another, and the point in its middle. */
export function curve(from, to, across) {
  if (across) {
    const [x1, y1, x2, y2] = [from.x + from.width, from.y + from.height / 2, to.x, to.y + to.height / 2];
    const bend = Math.max(24, (x2 - x1) / 2);
    return { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`, x: (x1 + x2) / 2, y: (y1 + y2) / 2 };
  }
  const [x1, y1, x2, y2] = [from.x + from.width / 2, from.y + from.height, to.x + to.width / 2, to.y];
  const bend = Math.max(18, (y2 - y1) / 2);
  return { d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`, x: (x1 + x2) / 2, y: (y1 + y2) / 2 };
}
