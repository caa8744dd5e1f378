"""The report of a soak as a page: its verdicts, its counts, and a picture of sizes over time.

`run.py` calls it at the end of a run, and with `--render`. It measures nothing.
"""

import json
import pathlib
import statistics

MIB_PER_HOUR_MAX = 1.0
WAL_MIB_MAX = 64
# A writer and readers that are opened when they are needed, each with the file and its log, and what they share.
DATABASE_DESCRIPTORS_MAX = 16
BACK_S_MAX = 5
# A life is compared with others of its server once it has lasted so long.
LIFE_S_MIN = 60
COLOURS = {"lives": "#1f6feb", "killed": "#d1570a", "pipes": "#2e8b57"}


def column(server, name, samples=None):
    at = server["columns"].index(name)
    return [line[at] for line in (server["samples"] if samples is None else samples)]


def slope(times, values):
    """The slope by least squares, and its standard error."""
    count = len(times)
    if count < 3:
        return None
    mean_t, mean_v = statistics.fmean(times), statistics.fmean(values)
    spread = sum((at - mean_t) ** 2 for at in times)
    rise = sum((at - mean_t) * (value - mean_v) for at, value in zip(times, values)) / spread
    left = sum((value - mean_v - rise * (at - mean_t)) ** 2 for at, value in zip(times, values))
    return rise, (left / (count - 2) / spread) ** 0.5


def steady(server):
    """The samples of the last two thirds."""
    times = column(server, "at_s")
    since = times[0] + (times[-1] - times[0]) / 3
    return [line for line in server["samples"] if line[0] >= since]


def hourly(server, name):
    """The growth of a column per hour over the last two thirds."""
    samples = steady(server)
    found = slope(column(server, "at_s", samples), column(server, name, samples))
    return found and (found[0] * 3600, found[1] * 3600)


def lives(server):
    """The samples of each life that lasted long enough."""
    whole = {}
    for line in server["samples"]:
        whole.setdefault(line[server["columns"].index("life")], []).append(line)
    return [samples for samples in whole.values() if samples[-1][0] - samples[0][0] >= LIFE_S_MIN - 1]


def over_lives(server):
    """The resident size at the end of each life: the sizes, and their growth per hour."""
    ends = [(samples[-1][0], statistics.fmean(column(server, "rss_mib", samples[-3:]))) for samples in lives(server)]
    found = slope([at for at, _ in ends], [size for _, size in ends])
    return [size for _, size in ends], found and found[0] * 3600


def idle_descriptors(report):
    """The descriptors of the idle server before the load and after it, but for those of its database."""
    idle = report["idle"]
    return [every - files for every, files in zip(column(idle, "descriptors"), column(idle, "database_descriptors"))]


def verdicts(report):
    judged = report["judged"]
    found = []

    def verdict(rule, text, goal, holds):
        found.append({"rule": rule, "found": text, "goal": goal, "holds": holds})

    long = report["servers"]["lives"]
    rise = hourly(long, "rss_low_mib")
    verdict("growth of resident memory of `lives`, last two thirds", f"{rise[0]:+.2f} ± {rise[1]:.2f} MiB/h" if rise else "–", f"at most {MIB_PER_HOUR_MAX:g} MiB/h", rise[0] <= MIB_PER_HOUR_MAX if judged and rise else None)
    before, after = idle_descriptors(report)
    verdict("descriptors of `lives`, idle before the load and after it", f"{before} and {after}", "no more after", after <= before)
    files = column(long, "database_descriptors")
    verdict("descriptors of its database", f"{max(files)} at most, {files[-1]} at the end", f"at most {DATABASE_DESCRIPTORS_MAX}", max(files) <= DATABASE_DESCRIPTORS_MAX)
    sampled = [server for server in report["servers"].values() if server["samples"]]
    wal = max(max(column(server, "wal_mib")) for server in sampled)
    verdict("largest write-ahead log", f"{wal:.1f} MiB", f"at most {WAL_MIB_MAX} MiB", wal <= WAL_MIB_MAX)
    back = [took for server in report["servers"].values() for took in server["back_s"]]
    slow = f"{statistics.median(back):.2f} s median, {max(back):.2f} s at most, of {len(back)}" if back else "no kills"
    verdict("back after `kill -9`", slow, f"within {BACK_S_MAX} s", max(back) <= BACK_S_MAX if back else None)
    verdict("processes that outlived their task by more than the grace and 1 s", str(report["orphans"]), "0", report["orphans"] == 0)
    verdict("processes left at the end", str(report["left_at_end"]), "0", report["left_at_end"] == 0)
    verdict("broken rules", str(len(report["faults"])), "0", not report["faults"])
    return found


def write(report, folder, images):
    report["verdicts"] = verdicts(report)
    (images / "soak.svg").write_text(picture(report), encoding="utf-8")
    (folder / "soak.json").write_text(compact(report), encoding="utf-8")
    link = "soak.svg" if folder == images else f"../{images.name}/soak.svg"
    (folder / "soak.md").write_text(markdown(report, link), encoding="utf-8")


def compact(report):
    """JSON with one sample a line."""
    text = json.dumps(report, indent=1)
    parts, depth = [], 0
    for line in text.split("\n"):
        bare = line.strip()
        if depth == 0 and bare == "[":
            depth = 1
            parts.append(line)
        elif depth:
            parts[-1] += bare + (" " if bare.endswith(",") else "")
            if bare in ("]", "],"):
                parts[-1] = parts[-1].rstrip()
                depth = 0
        else:
            parts.append(line)
    return "\n".join(parts) + "\n"


def markdown(report, link):
    minutes, settings = report["minutes"], report["settings"]
    rows = [f"| {v['rule']} | {v['found']} | {v['goal']} | {'holds' if v['holds'] else 'not judged' if v['holds'] is None else '**does not hold**'} |" for v in report["verdicts"]]
    sizes = [size_row(name, server) for name, server in report["servers"].items() if server["samples"]]
    before, after = column(report["idle"], "rss_mib")
    counts = [f"| {name} | {count} |" for name, count in report["counts"].items()]
    faults = [f"- {fault['rule']}: {' '.join(f'{key}={value}' for key, value in fault.items() if key not in ('rule', 'at'))}" for fault in report["faults"][:50]]
    return "\n".join([
        "# Soak",
        "",
        "Generated by `cargo xtask soak`; do not edit.",
        f"{minutes:g} minutes on {report['date']}, {report['version']}, {report['cores']} cores, seed {report['seed']}.",
        "",
        "| | found | goal | |",
        "|---|---|---|---|",
        *rows,
        "",
        f"![Resident memory, descriptors and write-ahead log over {minutes:g} minutes]({link})",
        "",
        "## How",
        "",
        "Four servers run side by side, each with a database of its own.",
        "`lives` runs from start to end: growth is judged there, since a life of three minutes cannot show it.",
        f"`killed` is killed with -9 about every {settings['kill_period_s']:g} s and started again; its clients use HTTP.",
        "`pipes` is reached over `longhaul stdio` only and killed as often; the pipes start it again.",
        "`visits` is a `serve --stdio` that its client kills or ends after some seconds; the next visit must find what the last one left.",
        f"Tasks live {settings['ttl_s']} s, so rows are deleted all the time. The grace between TERM and KILL is {settings['grace_s']} s.",
        "",
        "Clients speak 2025-11-25 (sessions, with and without a shared stream) and 2026-07-28 (`tasks/get`, `subscriptions/listen`, `tasks/update`), with tasks and without.",
        "Tools end at once, sleep, ask (answered, declined, dismissed, ignored), print 1 MB, leave grandchildren that ignore TERM, ignore TERM themselves, fail, wait in a queue, and are cancelled in every phase.",
        "Clients give up, reset connections, stop reading, leave sessions behind, and are killed in the middle. Shims of tools are killed.",
        "",
        "Every tool writes down that it starts and what it is about to print, so what clients are told can be held against what ran:",
        "",
        "- a task that a client was told of is there, and ends;",
        "- its result is what the tool wrote, and reads the same later;",
        "- no work runs twice, unless its tool says `rerun`; calls with one key, and equal calls after a client left, run once;",
        "- a task fails only where its server or its shim was killed; an acknowledged cancel holds; an answer reaches the tool;",
        "- no process lives longer than the end of its task, or the death of its server, plus the grace and 1 s;",
        "- a server that was not killed answers every request; past its time to live a task reads as expired.",
        "",
        "Growth is the slope by least squares over one sample every ten seconds, ± its standard error, in the last two thirds of the run.",
        "A sample is the lowest of twenty looks: results of 1 MB come and go, and a leak raises the floor as well.",
        "",
        "## Sizes",
        "",
        "| server | kills | programs started | memory at the end | highest | growth of memory over lives | descriptors, median and highest | threads | log at most | database | rows at most | processor time |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *sizes,
        "",
        f"`lives` idle: {before:.1f} MiB before the load, {after:.1f} MiB some seconds after it.",
        "The rows of tasks and their results are deleted within the run; the audit keeps growing by design.",
        "",
        *(remarks() if report["verdicts"][0]["holds"] is False else []),
        *(["## Broken rules", "", *faults, ""] if faults else []),
        "## Counts",
        "",
        "| what | how often |",
        "|---|---|",
        *counts,
        "",
    ])


def remarks():
    """What is written by hand about a goal that the published run misses."""
    return pathlib.Path(__file__).with_name("remarks.md").read_text(encoding="utf-8").splitlines() + [""]


def size_row(name, server):
    rss, descriptors = column(server, "rss_mib"), column(server, "descriptors")
    ends, growth = over_lives(server)
    over = f"{growth:+.1f} MiB/h over {len(ends)} lives" if growth is not None and server["kills"] else "–"
    rows = [count for count in column(server, "rows") if count is not None]
    return (f"| `{name}` | {server['kills']} | {server['starts']} | {rss[-1]:.1f} MiB | {max(rss):.1f} MiB | {over} | {statistics.median(descriptors):g}, {max(descriptors)} "
            f"| {max(column(server, 'threads'))} | {max(column(server, 'wal_mib')):.1f} MiB | {column(server, 'database_mib')[-1]:.1f} MiB | {max(rows)} | {processor(server)} |")


def processor(server):
    """The share of one core that the server itself took, over all lives."""
    spent = sum(samples[-1][-1] - samples[0][-1] for samples in by_life(server))
    lasted = sum(samples[-1][0] - samples[0][0] for samples in by_life(server))
    return f"{100 * spent / lasted:.1f} % of a core" if lasted else "–"


def by_life(server):
    whole = {}
    for line in server["samples"]:
        whole.setdefault(line[1], []).append(line)
    return whole.values()


# The picture.

WIDE, TALL, LEFT, TOP, GAP = 860, 150, 62, 34, 46
PANELS = (("rss_mib", "resident memory, MiB"), ("descriptors", "open descriptors"), ("wal_mib", "write-ahead log, MiB"))


def picture(report):
    end = max(server["samples"][-1][0] for server in report["servers"].values() if server["samples"]) or 1
    height = TOP + len(PANELS) * (TALL + GAP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 20} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{LEFT + WIDE + 20}" height="{height}" fill="#fff"/>']
    for index, (name, colour) in enumerate(COLOURS.items()):
        at = LEFT + index * 110
        out.append(f'<line x1="{at}" y1="14" x2="{at + 22}" y2="14" stroke="{colour}" stroke-width="2"/><text x="{at + 28}" y="18" fill="#333">{name}</text>')
    out.append(f'<text x="{LEFT + WIDE}" y="18" fill="#666" text-anchor="end">marks below each panel: kills</text>')
    for index, (name, title) in enumerate(PANELS):
        out += panel(report, name, title, TOP + index * (TALL + GAP), end)
    return "\n".join([*out, "</svg>", ""])


def panel(report, name, title, top, end):
    drawn = {server: report["servers"][server] for server in COLOURS if report["servers"][server]["samples"]}
    step, most = scale(max(max(column(server, name)) for server in drawn.values()))
    x = lambda at: LEFT + WIDE * at / end
    y = lambda value: top + 16 + (TALL - 16) * (1 - value / most)
    out = [f'<text x="{LEFT}" y="{top + 8}" fill="#333">{title}</text>']
    value = 0
    while value <= most * 1.001:
        out.append(f'<line x1="{LEFT}" y1="{y(value):.1f}" x2="{LEFT + WIDE}" y2="{y(value):.1f}" stroke="#e4e4e4"/><text x="{LEFT - 8}" y="{y(value) + 4:.1f}" fill="#666" text-anchor="end">{value:g}</text>')
        value += step
    every = next(every for every in (30, 60, 300, 600, 3600) if end / every <= 12)
    for at in range(0, int(end) + 1, every):
        out.append(f'<text x="{x(at):.1f}" y="{top + TALL + 24}" fill="#666" text-anchor="middle">{at / 60:g} min</text>')
    for server_name, server in drawn.items():
        for life in by_life(server):
            points = " ".join(f"{x(line[0]):.1f},{y(value):.1f}" for line, value in zip(life, column(server, name, life)))
            out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[server_name]}" stroke-width="1.4"/>')
        for at in server["killed_at_s"]:
            out.append(f'<line x1="{x(at):.1f}" y1="{top + TALL + 2}" x2="{x(at):.1f}" y2="{top + TALL + 10}" stroke="{COLOURS[server_name]}" stroke-width="1.5"/>')
    return out


def scale(most):
    """A step and an upper end for an axis with few round marks."""
    step = 1.0
    for step in (factor * 10 ** power for power in range(-2, 5) for factor in (1, 2, 5)):
        if most / step <= 5:
            break
    marks = 1
    while marks * step < most:
        marks += 1
    return step, marks * step
