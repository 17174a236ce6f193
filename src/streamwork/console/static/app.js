// The console: the session, the frame around every page, and which page an address shows.

import { render } from "./lib/htm-preact.js";
import { Dot, Trouble, html, useEffect, useRef, useState } from "./core/parts.js";
import { api, onLocked } from "./core/api.js";
import { useLink } from "./core/live.js";
import { useRoute } from "./core/route.js";
import { Overview } from "./pages/overview.js";
import { Job } from "./pages/job.js";

/** 1. Swap the token of the printed address for a cookie, and take it out of the address and the history. */
async function enter() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (!given) return;
  history.replaceState(null, "", "/#/");
  window.dispatchEvent(new HashChangeEvent("hashchange"));
  await api("/session", { method: "POST", body: { token: decodeURIComponent(given[1]) } });
}

function App() {
  const [session, setSession] = useState(null);
  const [locked, setLocked] = useState(false);
  const [error, setError] = useState(null);
  const route = useRoute();
  const begin = () =>
    api("").then((found) => {
      setSession(found);
      setLocked(false);
      setError(null);
    }, setError);
  useEffect(() => {
    const end = onLocked(() => setLocked(true));
    enter().catch(setError).then(begin);
    return end;
  }, []);
  return html`<${Frame} session=${session} route=${route}>
    ${
      locked
        ? html`<${Unlock} onDone=${begin} error=${error?.status === 401 ? null : error} />`
        : !session
          ? html`<${Starting} error=${error} again=${begin} />`
          : html`<${Page} route=${route} session=${session} />`
    }
  </${Frame}>`;
}

function Page({ route, session }) {
  if (!route.path.length) return html`<${Overview} session=${session} />`;
  if (route.path[0] === "jobs" && route.path[1])
    return html`<${Job} key=${route.path[1]} name=${route.path[1]} route=${route} session=${session} />`;
  return html`<h1 class="lede">There is no such page.</h1><p><a href="#/">All jobs</a></p>`;
}

const LINK = {
  connecting: ["still", "connecting"],
  live: ["good", "live"],
  lost: ["bad", "connection lost, trying again"],
};

/** Landmarks, the skip link, and the state of the connection. A new page gets the focus. */
function Frame({ session, route, children }) {
  const link = useLink();
  const main = useRef(null);
  const place = route.path.slice(0, 3).join("/");
  const before = useRef(place);
  useEffect(() => {
    if (before.current === place) return;
    before.current = place;
    if (!session) return; // the token has left the address; that is no new page
    window.scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [place]);
  const [tone, text] = LINK[link];
  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      main.current?.focus();
    }}>Skip to the content</a>
    <header class="bar"><div class="bar-in">
      <a class="brand" href="#/" aria-label="Streamwork console: all jobs"><${Mark} />Streamwork</a>
      <span class="root mono"><bdi>${session?.root ?? ""}</bdi></span>
      ${session && html`<span class="link-state" id="access">${session.actions ? "actions allowed" : "read-only"}</span>`}
      <span class=${`link-state ${link}`} id="link"><${Dot} tone=${tone} />${text}</span>
    </div></header>
    <main id="main" tabindex="-1" ref=${main}>${children}</main>
    <footer class="foot">
      <span>Streamwork ${session?.version ?? ""}</span>
      <span>Every figure here is what <code>streamwork status --json</code> prints.</span>
    </footer>`;
}

const Mark =
  () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><g fill="none" stroke-width="3.4" stroke-linecap="round">
  <path class="mark-3" d="M4 9c6 0 6-3 12-3s6 3 12 3" /><path class="mark-2" d="M4 17c6 0 6-3 12-3s6 3 12 3" /><path class="mark-1" d="M4 25c6 0 6-3 12-3s6 3 12 3" />
</g></svg>`;

const Starting = ({ error, again }) =>
  error
    ? html`<div class="stack"><h1 class="lede">The console does not answer.</h1><${Trouble} error=${error} />
      <button class="button" type="button" onClick=${again}>Try again</button></div>`
    : html`<h1 class="lede">Connecting …</h1>`;

function Unlock({ onDone, error }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState(error);
  const go = async (event) => {
    event.preventDefault();
    try {
      await api("/session", { method: "POST", body: { token: token.trim() } });
      await onDone();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<div class="stack narrow">
    <h1 class="lede">This console asks for the token of its root.</h1>
    <p>Open the address that <code>streamwork console</code> printed, or paste the token. It is in the file <code>access.token</code> of the root.</p>
    <form class="form" onSubmit=${go}>
      <div class="field grow"><label for="token">Token</label>
        <input id="token" type="text" class="mono" autocomplete="off" spellcheck="false" value=${token} onInput=${(event) => setToken(event.target.value)} /></div>
      <button class="button main" type="submit">Open</button>
    </form>
    <${Trouble} error=${problem} />
  </div>`;
}

render(html`<${App} />`, document.getElementById("app"));
