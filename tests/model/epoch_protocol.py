"""An executable specification of the epoch protocol: a small explicit-state model checker.

Every interleaving of drivers, crashes and damage is explored breadth first, so a reported trace is a shortest one.
A step is one durable effect (a file created, one sink transaction); a driver may be stopped for ever, or paused and
resumed, between any two steps.

    python3 epoch_protocol.py            the whole table
    python3 epoch_protocol.py NAME ...   only the runs whose name contains NAME, with the trace of what goes wrong

What is modelled
  input     a log of `events` events; an epoch takes 1 or 2 of them (0 for a tick), chosen freely
  state     one nonce per event: the attempt that processed it. Deterministic operators always use nonce 0
  sink 0    transactional: rows (event, nonce), applied together with the ledger row
  sink 1    idempotent: one value per key (event % 2), each key written on its own, the ledger row last
  drivers   at most two alive; a newcomer may take over at any time, so the older one is the paused "zombie"
  faults    see Faults; each has a budget, spent at any step
"""
import sys
import time
from collections import deque, namedtuple
from dataclasses import dataclass
from multiprocessing import Pool


@dataclass(frozen=True)
class Rules:
    """One switch per rule. The defaults are the protocol as it should be; every other value is an ablation."""
    register: str = "before-read"   # the fence goes into every sink: before-read | after-read | never
    read_check: bool = True         # having read the manifests, a driver that finds a fence above its own stops
    ledger: str = "sink"            # one row per sink | "none" | "by-fence" (each fence starts a row of its own)
    already_by: str = "hash"        # same epoch counts as applied: if the manifest "hash" agrees, or by "number"
    numbers: str = "never-reused"   # | "reused" (next = parent + 1)
    names: str = "fence"            # manifest files are named by epoch and fence | "epoch" only
    create: str = "if-absent"       # writing a prepared manifest over an existing name | "overwrite"
    plan_file: bool = True          # the plan is written before compute, and counts for numbering
    prepare: bool = True            # the prepared manifest is written before the first sink commits
    agree: bool = True              # prepare only if downstream consumed the attempt whose state is kept
    abandon: str = "unprepared"     # a slow epoch may be given up: only "unprepared" | "any" time
    roll: str = "reachable"         # which prepared manifest is rolled forward: see `target` | "any-child" of M | "never"
    cap: bool = True                # a manifest of fence f counts only up to where the next fence started
    cap_at: str = "ready"           # that start is recorded when recovery is "ready" | when it has "read"
    ahead: str = "offsets"          # ledger against manifest by end "offsets" | by epoch "number" | "refuse" (rule 5 to the letter)
    twin: bool = True               # a prepared manifest that is somebody's parent was completed: its twin stands in
    first: str = "zero"             # a new job has manifest "zero" | has none ("nothing"), and none good means refuse
    behind: bool = True             # staged outputs are applied again to a sink that is behind
    key_fence: bool = True          # every key write checks the registered fence
    key_order: str = "fence,epoch"  # ... and the stored (fence, epoch) | "epoch" | "none"
    key_begin: str = "fresh"        # the row gets a mark, "fresh" for every try, before the first key, and advances only from it | "epoch" | "no"


@dataclass(frozen=True)
class Faults:
    events: int = 3
    random: bool = False            # operators are not deterministic
    crash: int = 0                  # a driver dies
    takeover: int = 0               # a newcomer starts while another driver is alive
    damage: int = 0                 # the newest manifest's files no longer verify
    torn: int = 0                   # only the completed copy of the newest manifest is unreadable
    loss: int = 0                   # a sink loses its last commit (but not its registered fence)
    abandon: int = 0                # checkpoint_timeout strikes
    retry: int = 0                  # a task is run again after its output was consumed
    tick: int = 0                   # an epoch without events
    retain: int = 2
    sinks: int = 2


Manifest = namedtuple("Manifest", "id parent start end state out done bad")      # id = (epoch, fence, attempt): name and hash
Sink = namedtuple("Sink", "fence row end data begun prev")                       # row = id of the manifest last applied
Driver = namedtuple("Driver", "fence at top work jobs")                          # at = manifest it builds on; work = in progress
World = namedtuple("World", "bases plans manifests sinks drivers left lost")     # bases[f-1] = epoch where fence f started
Left = namedtuple("Left", "crash takeover damage torn loss abandon retry tick")
ZERO = Manifest((0, 0, 0), None, 0, 0, (), (), True, False)


NOT_SAME = "a sink is ahead and operators are not deterministic"
NONE_GOOD = "no manifest verifies"
GONE = "a sink is behind and the staged outputs are gone"
Violation, Refused = type("Violation", (Exception,), {}), type("Refused", (Exception,), {})


def put(seq, i, value):
    return seq[:i] + (value,) + seq[i + 1:]


def show(m):
    return f"{m.id[0]}/F{m.id[1]}"


class Protocol:
    def __init__(self, rules, faults, allowed=()):
        self.r, self.f, self.allowed, self.refusals = rules, faults, allowed, {}
        self.fence_limit = 3 + faults.takeover + faults.crash + 2 * faults.loss + faults.damage + faults.torn

    def initial(self):
        f, sinks = self.f, (Sink(0, ZERO.id, 0, (), None, None), Sink(0, ZERO.id, 0, ((), ()), None, None))[:self.f.sinks]
        left = Left(f.crash, f.takeover, f.damage, f.torn, f.loss, f.abandon, f.retry, f.tick)
        return World((), 0, (ZERO,), sinks, (), left, 0)

    # ---- what may happen next -------------------------------------------------------------------------------------
    def successors(self, w):
        """(what happened, next world). A Refused that the design does not allow surfaces as a Violation."""
        def spend(name, **more):
            return w._replace(left=w.left._replace(**{name: getattr(w.left, name) - 1}), **more)

        alive = len(w.drivers)
        if alive == 0 or (alive == 1 and w.left.takeover):
            if len(w.bases) >= self.fence_limit:
                raise Violation("never settles: driver after driver gives up")
            start = w if alive == 0 else spend("takeover")
            yield f"F{len(w.bases) + 1} starts: creates its fence", self.start(start)
        for i, d in enumerate(w.drivers):
            for what, nxt in self.step(w, i, d):
                yield f"F{d.fence} {what}", nxt
            if w.left.crash:
                yield f"F{d.fence} crashes", spend("crash", drivers=w.drivers[:i] + w.drivers[i + 1:])
            if w.left.abandon and self.may_abandon(d):
                yield f"F{d.fence} abandons epoch {d.work.id[0]}", spend("abandon", drivers=put(w.drivers, i, d._replace(work=None, jobs=())))
        newest = max(w.manifests, default=ZERO)
        if newest.id[0] and not newest.bad:
            if w.left.damage:
                yield f"files of {show(newest)} are damaged", spend("damage", manifests=self.store(w, newest._replace(bad=True)))
            if w.left.torn and newest.done:
                yield f"completed copy of {show(newest)} is damaged, its prepared twin is not", \
                    spend("torn", manifests=self.store(w, newest._replace(done=False)))
        for s, sink in enumerate(w.sinks):
            if sink.prev and w.left.loss:
                back = sink.prev._replace(fence=sink.fence)
                yield f"sink {s} loses its last commit", spend("loss", sinks=put(w.sinks, s, back), lost=-1)

    def may_abandon(self, d):
        if not d.work or not d.jobs or d.jobs[0][0] not in ("compute", "report", "prepare", "commit", "key", "row", "complete"):
            return False
        return self.r.abandon == "any" or d.jobs[0][0] in ("compute", "report", "prepare")

    def start(self, w):
        jobs = [("register", s) for s in range(len(w.sinks))]
        jobs = {"before-read": jobs + [("read",)], "after-read": [("read",)] + jobs, "never": [("read",)]}[self.r.register]
        return w._replace(bases=w.bases + (None,), drivers=w.drivers + (Driver(len(w.bases) + 1, None, 0, None, tuple(jobs)),))

    def step(self, w, i, d):
        """The next durable effect of driver i. Where the order is free, all orders."""
        def go(world=w, **changes):
            changes.setdefault("jobs", d.jobs[1:])
            return world._replace(drivers=put(world.drivers, i, d._replace(**changes)))

        def dead(world=w):
            return world._replace(drivers=w.drivers[:i] + w.drivers[i + 1:])

        if not d.jobs:
            yield from self.plan(w, d, go)
            return
        job, *args = d.jobs[0]
        if job == "register":
            (s,), sink = args, w.sinks[args[0]]
            if sink.fence > d.fence:
                return (yield f"is fenced off by sink {s} and stops", dead())
            sink = sink._replace(fence=d.fence, row=None if self.r.ledger == "by-fence" else sink.row)
            yield f"registers in sink {s}", go(w._replace(sinks=put(w.sinks, s, sink)))
        elif job == "read":
            if self.r.read_check and d.fence < len(w.bases):
                return (yield "sees a higher fence and stops", dead())
            try:
                found = [self.reconcile(w, at) for at in self.targets(w)]
            except Refused as refusal:                 # it waits for a person; other drivers may go on
                if str(refusal) not in self.allowed:
                    raise Violation(f"refuses: {refusal}")
                self.refusals[str(refusal)] = self.refusals.get(str(refusal), 0) + 1
                return
            for at, jobs in found:
                top = max([w.plans] + [m.id[0] for m in w.manifests] + [s.row[0] for s in w.sinks if s.row])
                w2 = w._replace(lost=d.fence if w.lost and d.fence == len(w.bases) else w.lost)
                if self.r.cap_at == "read":
                    w2 = w2._replace(bases=put(w.bases, d.fence - 1, max((m for m in w.manifests if m.done and not m.bad), key=lambda m: m.id).id[0]))
                yield f"reads: builds on {show(at)}" + ("" if at.done else ", which it rolls forward"), \
                    go(w2, at=at, top=top, jobs=d.jobs[1:] + tuple(jobs) + (("ready",),))
        elif job == "ready":
            w2 = w._replace(lost=0 if w.lost == d.fence else w.lost)     # what it saw at its start it has repaired
            yield "is ready", go(w2._replace(bases=put(w.bases, d.fence - 1, d.at.id[0])) if self.r.cap_at == "ready" else w2)
        elif job == "compute":
            n, _, attempt = d.work.id
            nonce = n * 100 + d.fence * 10 + attempt if self.f.random else 0
            work = d.work._replace(state=d.at.state + (nonce,) * (d.work.end - d.work.start))
            yield f"computes epoch {n}, events {work.start}..{work.end - 1}", go(work=work)
        elif job == "report":
            work = d.work._replace(out=tuple((e, d.work.state[e]) for e in range(d.work.start, d.work.end)))
            yield "stages its outputs and reports", go(work=work)
        elif job == "prepare":
            n, f, attempt = d.work.id
            if w.left.retry and attempt == 0:          # the upstream task runs again: its state is another attempt's
                nonce = n * 100 + f * 10 + 1 if self.f.random else 0
                again = d.work._replace(id=(n, f, 1), state=d.at.state + (nonce,) * (d.work.end - d.work.start))
                yield "runs the upstream task again", go(w._replace(left=w.left._replace(retry=w.left.retry - 1)), work=again, jobs=d.jobs)
            if self.r.agree and any(d.work.state[e] != nonce for e, nonce in d.work.out):
                return (yield "sees attempts disagree, computes again", go(jobs=(("compute",), ("report",)) + d.jobs))
            if self.r.names == "epoch" and any(m.id[0] == n for m in w.manifests):
                if self.r.create == "if-absent":
                    return (yield f"finds manifest {n} taken, gives the number up", go(work=None, jobs=(), top=max(d.top, n)))
                w = w._replace(manifests=tuple(m for m in w.manifests if m.id[0] != n))
            yield f"prepares {show(d.work)}", go(w._replace(manifests=self.store(w, d.work)) if self.r.prepare else w)
        elif job == "commit":
            todo, manifest = args[0], args[1] or d.work    # the sinks still to do, in any order
            for s in todo:
                rest = tuple(x for x in todo if x != s)
                after = ((("commit", rest, manifest),) if rest else ()) + d.jobs[1:]
                verdict = self.judge(w.sinks[s], d.fence, manifest)
                if verdict in ("fenced", "refuse"):
                    yield f"offers {show(manifest)} to sink {s}, whose row is {w.sinks[s].row}: {verdict}, and stops", dead()
                elif verdict in ("already", "skip"):
                    yield f"finds that sink {s} already has {show(manifest)}", go(jobs=after)
                elif s == 0 or verdict == "adopt":
                    yield f"commits {show(manifest)} to sink {s}" + (" (its rows are there already)" if verdict == "adopt" else ""), \
                        go(w._replace(sinks=put(w.sinks, s, self.apply(w, s, d.fence, manifest, rows=verdict == "apply"))), jobs=after)
                else:                                  # key by key, then the ledger row; only then the other sinks
                    keys = tuple(("key", k, manifest) for k in sorted({e % 2 for e, _ in manifest.out}))
                    sink = w.sinks[s]._replace(begun=self.mark(manifest, d), prev=self.before(w, w.sinks[s]))
                    yield f"begins {show(manifest)} in sink {s}", go(w._replace(sinks=put(w.sinks, s, sink)), jobs=keys + (("row", manifest),) + after)
        elif job == "key":
            (k, manifest), sink = args, w.sinks[1]
            if self.r.key_fence and sink.fence > d.fence:
                return (yield "is fenced off by sink 1 and stops", dead())
            order = {"fence,epoch": (manifest.id[1], manifest.id[0]), "epoch": (manifest.id[0],), "none": ()}[self.r.key_order]
            old = sink.data[k]
            if old and order < old[0]:
                return (yield f"finds key {k} newer", go())
            value = tuple((e, n) for e, n in enumerate(manifest.state[:manifest.start]) if e % 2 == k) + tuple((e, n) for e, n in manifest.out if e % 2 == k)
            if sink.fence > d.fence and (not old or old[1] != value):
                raise Violation("zombie: writes a key after a newer fence was registered")
            yield f"writes key {k} of {show(manifest)}", go(w._replace(sinks=put(w.sinks, 1, sink._replace(data=put(sink.data, k, (order, value))))))
        elif job == "row":
            manifest, = args
            verdict = self.judge(w.sinks[1], d.fence, manifest)
            if self.r.key_begin != "no" and w.sinks[1].begun != self.mark(manifest, d):
                verdict = "refuse"
            if verdict in ("fenced", "refuse"):
                return (yield f"is turned away by sink 1 ({verdict}) and stops", dead())
            yield f"advances the row of sink 1 to {show(manifest)}", go(w._replace(sinks=put(w.sinks, 1, self.apply(w, 1, d.fence, manifest, rows=False))))
        elif job == "rebase":
            (s, manifest), sink = args, w.sinks[args[0]]
            if sink.fence > d.fence:
                return (yield f"is fenced off by sink {s} and stops", dead())
            yield f"moves the row of sink {s} to {show(manifest)}: same end", go(w._replace(sinks=put(w.sinks, s, sink._replace(row=manifest.id))))
        elif job == "complete":
            manifest = args[0] or d.work
            manifest = manifest._replace(done=True, bad=any(m.id == manifest.id and m.bad for m in w.manifests))
            yield f"completes {show(manifest)}", go(w._replace(manifests=self.store(w, manifest)), at=manifest, work=None)
        elif job == "prune":
            yield "prunes", go(w._replace(manifests=self.pruned(w, d)))

    def plan(self, w, d, go):
        """Fix the slice of the next epoch. It never reaches across the end of a sink that is ahead."""
        n = d.at.id[0] + 1 if self.r.numbers == "reused" else d.top + 1
        limit = min([self.f.events] + [s.end for s in w.sinks if self.is_ahead(s, d.at)])
        sizes = [k for k in (1, 2) if d.at.end + k <= limit] + ([0] if w.left.tick else [])
        for k in sizes:
            work = Manifest((n, d.fence, 0), d.at.id, d.at.end, d.at.end + k, (), (), False, False)
            jobs = [("compute",), ("report",), ("prepare",)] + [("commit", tuple(range(len(w.sinks))), None)] * bool(w.sinks) + [("complete", None), ("prune",)]
            w2 = w._replace(left=w.left._replace(tick=w.left.tick - (k == 0)), plans=max(w.plans, n) if self.r.plan_file else w.plans)
            yield f"plans epoch {n}: {k} events after {show(d.at)}", go(w2, work=work, top=n, jobs=tuple(jobs))

    # ---- sinks ----------------------------------------------------------------------------------------------------
    def judge(self, sink, fence, m):
        """What a sink does with manifest m offered by `fence`."""
        r = self.r
        if r.register != "never" and sink.fence > fence:
            return "fenced"
        if r.ledger == "none" or sink.row is None:
            return "apply"
        if sink.row == m.id or (r.already_by == "number" and sink.row[0] == m.id[0]):
            return "already"
        if sink.row[0] == m.parent[0]:
            return "apply" if r.ahead != "number" or sink.end <= m.start else "adopt"
        if r.ahead != "refuse" and not self.f.random and sink.end >= m.end:        # catching up: it has these rows
            return "adopt" if sink.end == m.end else "skip"
        return "refuse"

    def apply(self, w, s, fence, m, rows):
        sink = w.sinks[s]
        prev = sink.prev if s == 1 and not rows and sink.begun and sink.begun[0] == m.id else self.before(w, sink)
        data = sink.data
        if s == 0 and rows:
            data = tuple(sorted(data + m.out))
            if len({e for e, _ in data}) < len(data):
                raise Violation("duplicate: an event is twice in the transactional sink")
        return Sink(max(fence, sink.fence), m.id, max(sink.end, m.end) if self.r.ledger == "sink" else m.end, data, None, prev)

    def mark(self, m, d):
        return m.id, d.fence if self.r.key_begin == "fresh" else m.id[1]

    def before(self, w, sink):
        """What a sink falls back to if it loses its last commit; remembered only while that can still happen."""
        return sink._replace(prev=None) if w.left.loss else None

    def is_ahead(self, sink, at):
        known = sink.row is not None and self.r.ledger == "sink"
        return known and (sink.row[0] > at.id[0] if self.r.ahead == "number" else sink.end > at.end)

    # ---- recovery -------------------------------------------------------------------------------------------------
    def counts(self, w, m):
        """A manifest of fence f counts only up to the epoch where the next fence (that got so far) started."""
        if self.r.first == "nothing" and m == ZERO:    # no manifest zero: empty is only right while nothing was ever written
            return len(w.manifests) == 1 and w.plans == 0
        later = [base for base in w.bases[m.id[1]:] if base is not None] if self.r.cap and m.id[1] else []
        return not m.bad and (not later or m.id[0] <= later[0])

    def newest(self, w):
        good = [m for m in w.manifests if self.counts(w, m) and (m.done or (self.r.twin and any(c.parent == m.id for c in w.manifests)))]
        if not good:
            raise Refused(NONE_GOOD)
        return max(good, key=lambda m: (m.id[1], m.id[0]))

    def way(self, w, m, row):
        """The manifests that take a sink from `row` to m, oldest first; None if there is no such way."""
        by_id, path = {x.id: x for x in w.manifests}, []
        while m.id != row:
            path.insert(0, m)
            if m.parent == row:
                break
            m = by_id.get(m.parent)
            if m is None or m.bad:
                return None
        return path

    def targets(self, w):
        """What a starting driver builds on. `reachable`: the newest manifest, completed or only prepared, whose files verify
        and that every ledger is at, or can be brought to with staged outputs; a prepared one is thereby rolled forward.
        Only if there is none (a sink is ahead of everything that verifies): the newest completed one, and catch up."""
        if self.r.roll == "reachable":
            good = [m for m in w.manifests if self.counts(w, m) and all(s.row is None or self.way(w, m, s.row) is not None for s in w.sinks)]
            return [max(good, key=lambda m: (m.id[1], m.id[0]))] if good else [self.newest(w)]
        at = self.newest(w)
        children = [m for m in w.manifests if self.counts(w, m) and not m.done and m.parent == at.id]
        return children if children and self.r.roll == "any-child" else [at]

    def reconcile(self, w, at):
        """Compare every sink's ledger with the manifest to build on; return it and what has to be done first."""
        jobs = []
        for s, sink in enumerate(w.sinks):
            if sink.row is None or self.r.ledger != "sink":
                jobs += [("commit", (s,), at)] if not at.done else []
                continue
            way = self.way(w, at, sink.row)
            if self.r.ahead == "number":               # the table read by epoch number
                way = [m for m in w.manifests if at.id[0] >= m.id[0] > sink.row[0] and not m.bad] if way is None else way
                jobs += [("commit", (s,), m) for m in way]
            elif way is not None:                      # equal (nothing to do) or behind
                if any(m.done for m in way) and not self.r.behind:
                    raise Refused("a sink is behind")
                jobs += [("commit", (s,), m) for m in way]
            elif sink.end < at.end:
                raise Refused(GONE)
            elif self.f.random:
                raise Refused(NOT_SAME)
            elif sink.end == at.end and self.r.ahead == "offsets":
                jobs += [("rebase", s, at)]
        return at, jobs + ([("complete", at)] if not at.done else [])

    def pruned(self, w, d):
        """Keep the newest `retain` of the chain; drop older ancestors, and what lower fences left outside the chain."""
        by_id, chain, m = {m.id: m for m in w.manifests}, [], d.at
        while m:
            chain.append(m.id)
            m = by_id.get(m.parent)
        keep = chain[:self.f.retain]
        return tuple(m for m in w.manifests if m.id in keep or (m.id not in chain and m.id[1] >= d.fence))

    def store(self, w, m):
        return tuple(sorted([x for x in w.manifests if x.id != m.id] + [m]))

    # ---- what must hold -------------------------------------------------------------------------------------------
    def settled(self, w):
        """The newest living driver, if it has nothing left to do."""
        d = max(w.drivers, key=lambda d: d.fence, default=None)
        return d if d and d.at and not d.jobs and d.at.end == self.f.events else None

    def check(self, w):
        if w.lost or not self.settled(w):
            return
        facts = tuple(enumerate(self.settled(w).at.state))
        if w.sinks:
            if [e for e, _ in w.sinks[0].data] != list(range(self.f.events)):
                raise Violation("missing: an event is not in the transactional sink")
            if w.sinks[0].data != facts:
                raise Violation("contradiction: committed rows do not come from the state that was kept")
        for k in (0, 1) if len(w.sinks) > 1 else ():
            if not w.sinks[1].data[k] or w.sinks[1].data[k][1] != tuple((e, n) for e, n in facts if e % 2 == k):
                raise Violation("upsert: a final value is not the fold of the input")


def explore(rules, faults, allowed=()):
    """Breadth first over all worlds. Returns (worlds, settled worlds, refusals by reason, violation or None, trace)."""
    p = Protocol(rules, faults, allowed)
    w = p.initial()
    came, queue, settled, problem, steps = {w: None}, deque([w]), 0, None, []
    try:
        while queue:
            w = queue.popleft()
            p.check(w)
            settled += p.settled(w) is not None
            moved, refused = False, sum(p.refusals.values())
            for what, nxt in p.successors(w):
                moved = True
                if nxt not in came:
                    came[nxt] = (w, what)
                    queue.append(nxt)
            if not moved and not p.settled(w) and refused == sum(p.refusals.values()):
                raise Violation("stuck: nothing can happen and the work is not done")
    except Violation as violation:
        problem = str(violation)
    while problem and came[w]:
        w, what = came[w]
        steps.insert(0, what)
    return len(came), settled, p.refusals, problem, steps


SCENARIOS = {  # name: (faults, refusals that the design asks for)
    "crash twice": (Faults(random=True, crash=2), ()),
    "task retried": (Faults(random=True, crash=1, retry=1), ()),
    "timeout": (Faults(random=True, crash=1, abandon=1), ()),
    "take-over": (Faults(random=True, crash=1, takeover=1), ()),
    "torn manifest": (Faults(random=True, crash=2, torn=1), ()),
    "sink lost a commit": (Faults(random=True, crash=1, loss=1), ()),
    "fallback": (Faults(crash=2, damage=1), ()),
    "fallback, random": (Faults(random=True, crash=2, damage=1), (NOT_SAME,)),
    "fallback, tick": (Faults(crash=1, damage=1, tick=1), ()),
    "fallback, loss": (Faults(crash=1, damage=1, loss=1), ()),
    "no sink, take-over": (Faults(random=True, sinks=0, crash=1, takeover=1, damage=1), ()),
    "torn, take-over": (Faults(random=True, crash=1, takeover=1, torn=1), ()),
    "loss, take-over": (Faults(random=True, crash=1, takeover=1, loss=1), ()),
    "timeout, take-over": (Faults(random=True, crash=1, takeover=1, abandon=1), ()),
    "4 events, take-over": (Faults(random=True, events=4, crash=1, takeover=1), ()),
    "fallback, take-over": (Faults(crash=1, takeover=1, damage=1), ()),
    "fallback, take-over, random": (Faults(random=True, crash=1, takeover=1, damage=1), (NOT_SAME,)),
}
ABLATIONS = [  # (group, what is changed, rules)
    ("as written", "a sink ahead: rule 5 to the letter", Rules(ahead="refuse")),
    ("as written", "ahead/behind told by epoch number", Rules(ahead="number")),
    ("as written", "a prepared epoch may be abandoned", Rules(abandon="any")),
    ("as written", "any prepared child of M rolls forward", Rules(roll="any-child")),
    ("as written", "the same, and no cap by fence", Rules(roll="any-child", cap=False)),
    ("as written", "cap recorded before the roll forward", Rules(cap_at="read")),
    ("needed?", "manifest names without the fence", Rules(names="epoch")),
    ("as written", "a torn manifest's twin is not used", Rules(twin=False, roll="any-child")),
    ("as written", "key writes do not check the fence", Rules(key_fence=False)),
    ("as written", "key writes without a begin mark", Rules(key_begin="no")),
    ("as written", "begin mark that names only the epoch", Rules(key_begin="epoch")),
    ("as written", "no manifest zero", Rules(first="nothing")),
    ("needed?", "a reader ignores higher fences", Rules(read_check=False)),
    ("control", "no ledger", Rules(ledger="none")),
    ("control", "ledger keyed by fence", Rules(ledger="by-fence")),
    ("control", "fence not registered in sinks", Rules(register="never", key_fence=False)),
    ("control", "manifests read before registering", Rules(register="after-read")),
    ("control", "epoch numbers reused", Rules(numbers="reused", already_by="number")),
    ("control", "prepared manifest overwritten", Rules(names="epoch", create="overwrite")),
    ("control", "no prepared manifest", Rules(prepare=False)),
    ("control", "never roll forward", Rules(roll="never")),
    ("control", "attempts need not agree", Rules(agree=False)),
    ("control", "nothing re-applied to a sink behind", Rules(behind=False)),
    ("needed?", "no cap by fence", Rules(cap=False)),
    ("needed?", "no cap, reader ignores higher fences", Rules(cap=False, read_check=False)),
    ("needed?", "no plan file", Rules(plan_file=False)),
    ("needed?", "epoch numbers reused, hash compared", Rules(numbers="reused")),
    ("needed?", "'already applied' by number only", Rules(already_by="number")),
    ("needed?", "keys compared by epoch only", Rules(key_order="epoch")),
    ("needed?", "keys not compared at all", Rules(key_order="none")),
    ("needed?", "keys not compared, no cap", Rules(key_order="none", cap=False)),
    ("needed?", "twin rule, given `reachable`", Rules(twin=False)),
]


def run(job):
    """One line of the table: the first scenario that breaks, or all of them."""
    group, name, rules, names = job
    began, total, done = time.time(), 0, 0
    for scenario in names:
        worlds, settled, refusals, problem, steps = explore(rules, *SCENARIOS[scenario])
        total, done = total + worlds, done + settled
        if problem:
            break
    return group, name, total, done, time.time() - began, (f"{problem}  [{scenario}, {len(steps)} steps]" if problem else "holds"), refusals, steps


def main(words):
    jobs = [("protocol", s, Rules(), [s]) for s in SCENARIOS] + [(g, n, r, list(SCENARIOS)) for g, n, r in ABLATIONS]
    jobs = [j for j in jobs if not words or any(x in j[0] + " " + j[1] for x in words)]
    worlds = wrong = 0
    print(f"{'group':11}{'run':39}{'worlds':>9}{'settled':>9}{'sec':>6}  result")
    with Pool() as pool:
        for group, name, total, settled, seconds, result, refusals, steps in pool.imap(run, jobs):
            worlds += total
            wrong += (result != "holds") != (group in ("control", "as written")) and group != "needed?"
            print(f"{group:11}{name:39}{total:9}{settled:9}{seconds:6.1f}  {result}" + (f"  refusals {sum(refusals.values())}" if group == "protocol" and refusals else ""), flush=True)
            for step in steps if words else ():
                print("             ", step)
    print(f"{len(jobs)} runs, {worlds} worlds; {wrong} not as expected")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
