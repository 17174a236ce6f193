// Whether a job runs: [tone, words].

const LIVES = {
  running: ["good", "running"],
  ended: ["still", "ended"],
  gone: ["bad", "killed or crashed"],
  unknown: ["warn", "perhaps running"],
};

export const lifeOf = (status) => {
  if (!status.holder) return ["still", "never started"];
  if (status.restarting) return ["warn", "restarting"];
  return LIVES[status.holder.life] ?? ["still", String(status.holder.life)];
};

/** "machine:pid" of a process; what follows the slash in its host tells two boots of a machine apart. */
export const processText = (process) => (process ? `${String(process.host ?? "").split("/")[0]}:${process.pid}` : "");
