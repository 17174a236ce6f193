// Requests for JSON. Paths are relative to /api; an error of the server is thrown as it came: {code, cause, action}.

import { useEffect, useState } from "../lib/htm-preact.js";

const listeners = new Set();

/** Call `listener` whenever the server asks for the token. Gives a function that ends that. */
export function onLocked(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export async function api(path, { method = "GET", body, signal } = {}) {
  const address = path === "" ? "/api" : path.startsWith("/") ? path : `/api/${path}`;
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  let answer;
  try {
    answer = await fetch(address, {
      method,
      headers,
      signal,
      credentials: "same-origin",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw {
      code: "",
      cause: "the console does not answer",
      action: "start it again with `streamwork console`",
      unreachable: true,
    };
  }
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  if (answer.status === 401 && path !== "/session") for (const one of listeners) one();
  throw { status: answer.status, ...(await errorOf(answer)) };
}

async function errorOf(answer) {
  try {
    const { error } = await answer.json();
    return { code: String(error.code ?? ""), cause: String(error.cause ?? ""), action: String(error.action ?? "") };
  } catch {
    return { code: "", cause: `the console answered with status ${answer.status}`, action: "" };
  }
}

export const jobPath = (job, ...rest) => ["jobs", job, ...rest].map(encodeURIComponent).join("/");

/** {data, error}: read again when the path or `version` changes. The last answer stays until the next one has come. */
export function useJson(path, version = 0) {
  const [found, setFound] = useState({ path: null, data: null, error: null });
  useEffect(() => {
    if (!path) return undefined;
    const control = new AbortController();
    api(path, { signal: control.signal }).then(
      (data) => setFound({ path, data, error: null }),
      (error) =>
        error.name !== "AbortError" &&
        setFound((before) => ({ path, data: before.path === path ? before.data : null, error })),
    );
    return () => control.abort();
  }, [path, version]);
  return found.path === path ? found : { data: null, error: null };
}
