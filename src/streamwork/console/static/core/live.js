// Server-sent events, and whether they arrive. A stream that breaks is opened again, after 1, 2, 4, … 15 seconds.

import { useEffect, useState } from "../lib/htm-preact.js";
import { announce } from "./announce.js";
import { api } from "./api.js";

const MOST_SECONDS = 15;

/** "connecting", "live" or "lost", with those who want to know. */
const link = { state: "connecting", listeners: new Set() };

function setLink(state) {
  if (link.state === state) return;
  if (state === "lost") announce("Connection lost. The figures are old until it is back.");
  if (state === "live" && link.state === "lost") announce("Connected again.");
  link.state = state;
  for (const listener of link.listeners) listener(state);
}

export function useLink() {
  const [state, setState] = useState(link.state);
  useEffect(() => {
    link.listeners.add(setState);
    setState(link.state);
    return () => link.listeners.delete(setState);
  }, []);
  return state;
}

/** Open a stream; `handlers` are called by name of the event with its data. Gives a function that closes it. */
export function listen(path, handlers) {
  let stream = null;
  let timer = null;
  let failures = 0;
  let closed = false;
  const open = () => {
    stream = new EventSource(`/api/${path}`);
    stream.onopen = () => {
      failures = 0;
      setLink("live");
    };
    for (const [name, handler] of Object.entries(handlers)) {
      stream.addEventListener(name, (event) => {
        setLink("live");
        handler(JSON.parse(event.data));
      });
    }
    stream.onerror = () => {
      if (closed) return;
      setLink("lost");
      stream.close();
      api("").catch(() => {}); // asks for the token, if that is what is missing
      timer = setTimeout(open, 1000 * Math.min(MOST_SECONDS, 2 ** failures));
      failures += 1;
    };
  };
  open();
  return () => {
    closed = true;
    clearTimeout(timer);
    stream.close();
  };
}

/** Seconds since 1970, updated each second, for ages. */
export function useNow() {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
