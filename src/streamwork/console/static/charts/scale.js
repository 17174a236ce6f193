// Scales and ticks, and the width of the element that a chart is drawn in. Pure but for `useWidth`.

import { useLayoutEffect, useState } from "../lib/htm-preact.js";

/** Round steps that cover 0 to `most`: about `wanted` of them. */
export function ticks(most, wanted = 4) {
  if (!(most > 0) || !Number.isFinite(most)) return [0, 1];
  const rough = most / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * power >= rough * 0.999) * power;
  const found = [];
  for (let at = 0; found.length < 12; at += 1) {
    found.push(Number((at * step).toPrecision(12)));
    if (at * step >= most) break;
  }
  return found;
}

const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

/** Moments on round seconds, minutes, hours or days between two moments. */
export function timeTicks(from, to, wanted = 5) {
  const step =
    STEPS.find((one) => (to - from) / one <= wanted) ?? STEPS.at(-1) * Math.ceil((to - from) / STEPS.at(-1) / wanted);
  const zone = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to && found.length < 50; at += step)
    found.push(at);
  return found;
}

export const linear = (from, to, low, high) => (value) =>
  to === from ? low : low + ((value - from) / (to - from)) * (high - low);

/** [ref, width]: the width of an element in pixels, kept up to date. The element may come later than the component. */
export function useWidth(initial = 640) {
  const [element, ref] = useState(null);
  const [width, setWidth] = useState(initial);
  useLayoutEffect(() => {
    if (!element) return undefined;
    const measure = () => setWidth(Math.max(200, Math.floor(element.getBoundingClientRect().width)));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [element]);
  return [ref, width];
}
