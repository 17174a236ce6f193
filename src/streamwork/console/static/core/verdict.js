// What a verdict means for the eye: a tone of colour, a word, a rank. Pure.

const TONES = {
  "restart loop": "bad",
  stopped: "bad",
  thrashing: "warn",
  "under pressure": "warn",
  "falling behind": "warn",
  "slow sink": "warn",
  "short interval": "warn",
  "skewed key": "warn",
  "growing state": "warn",
  "keeping up": "good",
};
const RANK = { bad: 0, warn: 1, still: 2, good: 3 };

/** "good", "warn", "bad" or "still" (at rest). */
export function toneOf(verdict, driver = null) {
  if (!verdict) return "still";
  if (verdict.kind === "not running") return driver?.life === "gone" ? "bad" : "still";
  return TONES[verdict.kind] ?? "warn";
}

export const toneOfJob = (summary) => (summary.problem ? "bad" : toneOf(summary.verdict, summary.driver));

export const byTrouble = (one, other) =>
  RANK[toneOfJob(one)] - RANK[toneOfJob(other)] || (one.job < other.job ? -1 : one.job > other.job ? 1 : 0);

/** Sentences begin with a capital, unless they begin with a name; verdicts are written to follow their kind. */
export function sentence(text, name = "") {
  if (!text) return "";
  const whole = name && text.startsWith(name) ? text : text[0].toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

/** The headline of the overview. */
export function headline(jobs) {
  if (!jobs.length) return "No job has run in this root yet.";
  const troubled = jobs.filter((one) => ["bad", "warn"].includes(toneOfJob(one))).length;
  const still = jobs.filter((one) => toneOfJob(one) === "still").length;
  if (troubled && jobs.length === 1) return "The job needs attention.";
  if (troubled) return `${troubled} of ${jobs.length} jobs ${troubled === 1 ? "needs" : "need"} attention.`;
  if (still === jobs.length) return jobs.length === 1 ? "The job is at rest." : `All ${jobs.length} jobs are at rest.`;
  const running = jobs.length - still;
  const rest = still ? ` ${still} ${still === 1 ? "is" : "are"} at rest.` : "";
  if (jobs.length === 1) return "The job keeps up.";
  return `${still ? `${running} ${running === 1 ? "job keeps" : "jobs keep"} up.` : `All ${running} jobs keep up.`}${rest}`;
}
