// One job: its verdict, its tabs, and the figures that all of them share, kept up to date by one stream.

import { Chip, Trouble, html, useEffect, useRef, useState } from "../core/parts.js";
import { api, jobPath } from "../core/api.js";
import { count } from "../core/format.js";
import { listen, useNow } from "../core/live.js";
import { jobLink } from "../core/route.js";
import { Components } from "./components.js";
import { Epochs } from "./epochs.js";
import { JobOverview } from "./job-overview.js";
import { Letters } from "./letters.js";
import { Runs } from "./runs.js";
import { Savepoints } from "./savepoints.js";
import { State } from "./state.js";
import { StopButton } from "./stop.js";
import { Finding } from "./finding.js";
import { lifeOf } from "./life.js";

const TABS = [
  ["", "Overview", JobOverview],
  ["epochs", "Epochs", Epochs],
  ["components", "Components", Components],
  ["state", "State", State],
  ["letters", "Dead letters", Letters],
  ["savepoints", "Savepoints", Savepoints],
  ["runs", "Runs and log", Runs],
  ["explain", "How a checkpoint works", Explain],
];

/** {found, gone}: the job's figures, and why they cannot be read any longer. */
function useLiveJob(name) {
  const [found, setFound] = useState(null);
  const [gone, setGone] = useState(null);
  useEffect(() => {
    api(jobPath(name)).then((data) => setFound((before) => before ?? data), setGone);
    return listen(jobPath(name, "events"), {
      job: (data) => {
        setFound(data);
        setGone(null);
      },
      gone: (data) => setGone(data.error),
    });
  }, [name]);
  return { found, gone };
}

export function Job({ name, route, session }) {
  const { found, gone } = useLiveJob(name);
  const now = useNow();
  const tab = TABS.find(([path]) => path === (route.path[2] ?? "")) ?? TABS[0];
  useEffect(() => {
    document.title = `${[...route.path.slice(3)]
      .reverse()
      .concat(tab[0] ? tab[1] : [])
      .concat(name)
      .join(" · ")} · Streamwork`;
  }, [route.path.join("/")]);
  if (!found) {
    return html`<div class="stack"><h1 class="lede">${gone ? `Job ${name} cannot be read.` : `Reading job ${name} …`}</h1>
      <${Trouble} error=${gone} />${gone && html`<a href="#/">All jobs</a>`}</div>`;
  }
  const Body = tab[2];
  return html`<div class="stack job">
    <${Head} job=${found} session=${session} now=${now} />
    ${gone && html`<${Trouble} error=${gone} />`}
    <nav class="tabs" aria-label="Parts of this job"><ul>${TABS.map(
      ([path, title]) => html`<li key=${path}>
      <a href=${jobLink(name, ...(path ? [path] : []))} aria-current=${path === tab[0] ? "page" : null}>${title}${badge(path, found)}</a></li>`,
    )}</ul></nav>
    <${Body} key=${tab[0]} job=${found} name=${name} route=${route} session=${session} now=${now} />
  </div>`;
}

function badge(path, job) {
  const letters = job.status.dead_letters;
  const open = path === "letters" ? letters.count - letters.replayed : 0;
  return open > 0 ? html` <span class="badge" aria-label=${`, ${open} not replayed`}>${count(open)}</span>` : null;
}

function Head({ job, session }) {
  const { status } = job;
  const [tone, life] = lifeOf(status);
  const worst = status.verdicts[0];
  return html`<div class="job-head">
    <p class="crumb small"><a href="#/">All jobs</a></p>
    <div class="row apart">
      <div class="row"><h1 class="wrap">${job.job}</h1><${Chip} tone=${tone} dot>${life}</${Chip}>${job.semantics && html`<${Chip}>${job.semantics}</${Chip}>`}${job.run?.mode && html`<${Chip}>${job.run.mode} mode</${Chip}>`}</div>
      <${StopButton} job=${job} session=${session} />
    </div>
    ${worst && html`<${Finding} verdict=${worst} driver=${status.holder} />`}
  </div>`;
}

/** The page of `explain.js`, which draws into an element of its own. */
function Explain({ name }) {
  const box = useRef(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    let unmount = null;
    let left = false;
    import("../explain.js")
      .then((page) =>
        page.mount(box.current, {
          job: name,
          api,
          go: (hash) => {
            location.hash = hash;
          },
        }),
      )
      .then((end) => {
        unmount = end;
        if (left) end?.();
      })
      .catch((problem) =>
        setError(
          problem.cause ? problem : { cause: "this page cannot be loaded", action: String(problem.message ?? problem) },
        ),
      );
    return () => {
      left = true;
      unmount?.();
    };
  }, [name]);
  return html`<div><${Trouble} error=${error} /><div ref=${box}></div></div>`;
}
