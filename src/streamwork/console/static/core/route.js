// Addresses: `#/jobs/NAME/TAB/DETAIL?x=y`. Each place of the console has one, so that it can be sent to somebody.

import { useEffect, useState } from "../lib/htm-preact.js";

/** "#/jobs/a%2Fb/epochs/3?x=1" -> {path: ["jobs", "a/b", "epochs", "3"], query: {x: "1"}} */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decoded), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function link(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${tail}`;
}

export const jobLink = (job, ...rest) => link(["jobs", job, ...rest.map(String)]);

/** Change the query of the present address without a new entry in the history. */
export function setQuery(route, query) {
  history.replaceState(null, "", link(route.path, query));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parse(location.hash));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return route;
}
