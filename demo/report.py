"""The demo's report: one self-contained HTML page, made from the measurements of one run."""

import html
import json
from pathlib import Path

# Colours follow what a span is, not where it ran: two lanes that do the same thing look the same.
COLOURS = {
    "compute": "#4c78a8",
    "communicate": "#f58518",
    "input": "#54a24b",
    "store": "#b279a2",
    "checkpoint": "#9d755d",
    "wait": "#e45756",
}


def write(path: Path, run: dict) -> None:
    """Writes the page. `run` holds title, machine, checks, phases, hidden, facts, loss and timeline (see main.py)."""
    page = _PAGE.replace("@TITLE@", html.escape(run["title"]))
    page = page.replace("@MACHINE@", html.escape(run["machine"]))
    page = page.replace("@HEADLINE@", _headline(run))
    page = page.replace("@FACTS@", _facts(run["facts"]))
    page = page.replace("@CHECKS@", _checks(run["checks"]))
    page = page.replace("@PHASES@", _phases(run["phases"]))
    page = page.replace("@HIDDEN@", _hidden(run["hidden"]))
    page = page.replace("@LOSS@", _loss(run["loss"]))
    page = page.replace("@LEGEND@", _legend())
    data = {**run["timeline"], "colours": COLOURS}
    page = page.replace("@DATA@", json.dumps(data, separators=(",", ":")).replace("</", "<\\/"))
    path.write_text(page, encoding="utf-8")


def _headline(run: dict) -> str:
    plain, fast = run["total_s"]["plain"], run["total_s"]["penstock"]
    ratio = plain / fast
    word = "faster" if ratio >= 1 else "slower"
    factor = ratio if ratio >= 1 else 1 / ratio
    return (
        f"The same work, from the same first step to the same last one: <b>{plain:.1f} s</b> the plain way, "
        f"<b>{fast:.1f} s</b> with Penstock: <b>{factor:.2f} times {word}</b>."
    )


def _facts(facts: list[dict]) -> str:
    return "".join(
        f'<div class="fact"><div class="value">{html.escape(f["value"])}</div>'
        f'<div class="what">{html.escape(f["what"])}</div></div>'
        for f in facts
    )


def _checks(checks: list[dict]) -> str:
    rows = []
    for check in checks:
        mark = '<span class="ok">✓</span>' if check["ok"] else '<span class="bad">✗</span>'
        rows.append(f"<li>{mark} {html.escape(check['what'])} <small>{html.escape(check['detail'])}</small></li>")
    return "<ul class=checks>" + "".join(rows) + "</ul>"


def _phases(phases: list[dict]) -> str:
    longest = max(max(p["plain_s"], p["penstock_s"]) for p in phases) or 1.0

    def bar(seconds: float, colour: str) -> str:
        return (
            f'<div class="bar" style="width:{75 * seconds / longest:.2f}%;background:{colour}"></div>'
            f'<span class="seconds">{seconds:.2f}</span>'
        )

    rows = []
    for phase in phases:
        colour = COLOURS[phase["kind"]]
        rows.append(
            f"<tr><th>{html.escape(phase['name'])}<small>{html.escape(phase['note'])}</small></th>"
            f"<td>{bar(phase['plain_s'], colour)}</td><td>{bar(phase['penstock_s'], colour)}</td></tr>"
        )
    return (
        "<table class=phases><thead><tr><th>Seconds on the application thread, mean of the ranks</th><th>plain</th>"
        "<th>Penstock</th></tr></thead><tbody>" + "".join(rows) + "</tbody></table>"
    )


def _hidden(hidden: list[dict]) -> str:
    rows = "".join(
        f"<tr><th>{html.escape(h['what'])}</th><td>{h['busy_s']:.2f} s</td><td>{h['stall_s']:.2f} s</td>"
        f'<td><div class="share"><div style="width:{h["hidden_pct"]:.1f}%"></div></div> {h["hidden_pct"]:.0f} %</td></tr>'
        for h in hidden
    )
    return (
        "<table class=hidden><thead><tr><th></th><th>under way</th><th>the training waited</th>"
        "<th>hidden behind computation</th></tr></thead><tbody>" + rows + "</tbody></table>"
    )


def _loss(loss: dict) -> str:
    """Loss curves as an SVG; `loss` maps a label to [[step, loss], …]."""
    width, height, left, bottom = 760, 230, 44, 24
    points = [p for curve in loss.values() for p in curve]
    last_step = max(p[0] for p in points) or 1
    top = max(p[1] for p in points) * 1.05 or 1.0

    def x(step: float) -> float:
        return left + (width - left - 8) * step / last_step

    def y(value: float) -> float:
        return (height - bottom) * (1 - value / top) + 4

    styles = [("#4c78a8", 5, 0.35), ("#e45756", 2, 1.0), ("#54a24b", 1.2, 1.0)]
    curves, legend = [], []
    for (label, curve), (colour, stroke, opacity) in zip(loss.items(), styles, strict=False):
        path = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in curve)
        curves.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{stroke}" stroke-opacity="{opacity}"/>'
        )
        legend.append(f'<span><i style="background:{colour}"></i>{html.escape(label)}</span>')
    ticks = "".join(
        f'<text x="{left - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.1f}</text>'
        f'<line x1="{left}" x2="{width - 8}" y1="{y(v):.1f}" y2="{y(v):.1f}" class="grid"/>'
        for v in (top * k / 4 for k in range(4))
    )
    steps = "".join(
        f'<text x="{x(s):.1f}" y="{height - 4}" text-anchor="middle">{s}</text>'
        for s in range(0, last_step + 1, max(1, last_step // 6))
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="loss per step">{ticks}{steps}{"".join(curves)}</svg>'
        f'<div class="legend">{"".join(legend)}</div>'
    )


def _legend() -> str:
    return "".join(f'<span><i style="background:{colour}"></i>{kind}</span>' for kind, colour in COLOURS.items())


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
:root { color-scheme: light dark; --fg:#1b1f24; --bg:#fbfaf8; --card:#fff; --line:#e3e0da; --dim:#69707a; }
@media (prefers-color-scheme: dark) { :root { --fg:#e8e6e3; --bg:#16181c; --card:#1e2126; --line:#33373e; --dim:#9aa1ab; } }
* { box-sizing:border-box }
body { margin:0 auto; padding:2.2rem 1.4rem 4rem; max-width:1120px; background:var(--bg); color:var(--fg);
       font:15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size:1.7rem; margin:0 0 .2rem; letter-spacing:-.01em } h2 { font-size:1.08rem; margin:2.4rem 0 .7rem }
p.lead { font-size:1.08rem; margin:.6rem 0 1.4rem } small, .dim { color:var(--dim); font-weight:400 }
.card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:1rem 1.2rem }
.facts { display:grid; grid-template-columns:repeat(auto-fit,minmax(165px,1fr)); gap:.8rem }
.fact { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:.8rem 1rem }
.fact .value { font-size:1.32rem; font-weight:650; font-variant-numeric:tabular-nums } .fact .what { color:var(--dim); font-size:.86rem; line-height:1.35 }
table { width:100%; border-collapse:collapse; font-variant-numeric:tabular-nums }
th { text-align:left; font-weight:500 } thead th { color:var(--dim); font-size:.84rem; padding-bottom:.4rem }
tbody th small { display:block; font-size:.8rem; line-height:1.3 } tbody td, tbody th { border-top:1px solid var(--line); padding:.42rem .5rem .42rem 0 }
table.phases td { width:33% } .bar { display:inline-block; height:.8rem; border-radius:2px; min-width:1px; vertical-align:middle }
.seconds { margin-left:.45rem } .share { display:inline-block; width:9rem; height:.6rem; background:var(--line); border-radius:3px; overflow:hidden; vertical-align:middle; margin-right:.5rem }
.share div { height:100%; background:#54a24b } ul.checks { list-style:none; padding:0; margin:0; columns:2; column-gap:2.4rem }
ul.checks li { break-inside:avoid; padding:.18rem 0 } ul.checks small { display:block; margin-left:1.35rem; line-height:1.3 }
.ok { color:#3d9a50; font-weight:700 } .bad { color:#d63d3d; font-weight:700 }
svg text { fill:var(--dim); font-size:11px } .grid { stroke:var(--line) }
.legend { display:flex; flex-wrap:wrap; gap:.3rem 1.1rem; color:var(--dim); font-size:.86rem } .legend i { display:inline-block; width:.8rem; height:.8rem; border-radius:2px; margin-right:.35rem; vertical-align:-.08rem }
#timeline { width:100%; display:block; touch-action:none; cursor:grab } #tip { position:fixed; pointer-events:none; background:var(--fg); color:var(--bg); padding:.25rem .5rem; border-radius:5px; font-size:.82rem; display:none; white-space:nowrap }
@media (max-width:700px) { ul.checks { columns:1 } }
</style></head><body>
<h1>@TITLE@</h1><div class="dim">@MACHINE@</div>
<p class="lead">@HEADLINE@</p>
<div class="facts">@FACTS@</div>
<h2>What was verified</h2><div class="card">@CHECKS@</div>
<h2>Where the time went</h2><div class="card">@PHASES@</div>
<h2>What moved behind the computation</h2><div class="card">@HIDDEN@</div>
<h2>What every lane did when</h2>
<div class="card"><div class="legend" style="margin-bottom:.6rem">@LEGEND@</div><canvas id="timeline"></canvas>
<small>Wheel to zoom, drag to move, double-click to see everything. Point at a span to read it.</small></div>
<h2>The loss, before the kill, after the restart, and the plain way</h2><div class="card">@LOSS@</div>
<div id="tip"></div>
<script>
const data = @DATA@;
const canvas = document.getElementById("timeline"), tip = document.getElementById("tip"), ctx = canvas.getContext("2d");
const laneHeight = 17, gap = 9, label = 118, axis = 22;
let rows = [], height = 6;
data.lanes.forEach((lane, i) => { if (i && lane.group !== data.lanes[i-1].group) height += gap; rows.push(height); height += laneHeight; });
height += axis;
let end = 1; for (const e of data.events) end = Math.max(end, e[2] + e[3]);
let from = 0, to = end;
function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name); }
function x(t) { return label + (t - from) / (to - from) * (canvas.clientWidth - label - 4); }
function draw() {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0); ctx.clearRect(0, 0, width, height); ctx.font = "11px system-ui, sans-serif";
  data.lanes.forEach((lane, i) => {
    ctx.fillStyle = css("--line"); ctx.globalAlpha = .45; ctx.fillRect(label, rows[i] + 1, width - label - 4, laneHeight - 2); ctx.globalAlpha = 1;
    ctx.fillStyle = css("--dim"); ctx.textAlign = "right"; ctx.fillText(lane.name, label - 8, rows[i] + 12);
  });
  ctx.save(); ctx.beginPath(); ctx.rect(label, 0, width - label - 4, height); ctx.clip();
  for (const [lane, name, t, d] of data.events) {
    if (t + d < from || t > to) continue;
    ctx.fillStyle = data.colours[data.names[name][1]];
    const left = x(t); ctx.fillRect(left, rows[lane] + 2, Math.max(.6, x(t + d) - left - .25), laneHeight - 4);
  }
  for (const mark of data.marks) {
    ctx.strokeStyle = css("--fg"); ctx.setLineDash([4, 3]); ctx.beginPath(); ctx.moveTo(x(mark[0]), 0); ctx.lineTo(x(mark[0]), height - axis); ctx.stroke();
    ctx.setLineDash([]); ctx.fillStyle = css("--fg"); ctx.textAlign = "left"; ctx.fillText(mark[1], x(mark[0]) + 4, height - axis + 9);
  }
  ctx.restore();
  const raw = (to - from) / 8, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find(k => k * power >= raw) * power;
  ctx.fillStyle = css("--dim"); ctx.textAlign = "center";
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    ctx.fillRect(x(t), height - axis, 1, 3);
    ctx.fillText(step >= 1e5 ? (t / 1e6).toFixed(1) + " s" : (t / 1e3).toFixed(step >= 1e3 ? 0 : 2) + " ms", Math.min(x(t), width - 24), height - 4);
  }
}
canvas.addEventListener("wheel", e => {
  e.preventDefault();
  const t = from + (e.offsetX - label) / (canvas.clientWidth - label - 4) * (to - from), k = e.deltaY > 0 ? 1.25 : .8;
  from = Math.max(0, t - (t - from) * k); to = Math.min(end, t + (to - t) * k); if (to - from < 20) to = from + 20; draw();
}, { passive: false });
let drag = null;
canvas.addEventListener("pointerdown", e => { drag = [e.clientX, from, to]; canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener("pointerup", () => { drag = null; });
canvas.addEventListener("dblclick", () => { from = 0; to = end; draw(); });
canvas.addEventListener("pointermove", e => {
  if (drag) {
    const span = drag[2] - drag[1], shift = (drag[0] - e.clientX) / (canvas.clientWidth - label - 4) * span;
    from = Math.min(Math.max(0, drag[1] + shift), end - span); to = from + span; draw(); return;
  }
  const lane = rows.findIndex(r => e.offsetY >= r && e.offsetY < r + laneHeight);
  const t = from + (e.offsetX - label) / (canvas.clientWidth - label - 4) * (to - from), near = (to - from) / canvas.clientWidth * 2;
  const hit = lane < 0 ? null : data.events.find(v => v[0] === lane && v[2] - near <= t && t <= v[2] + v[3] + near);
  tip.style.display = hit ? "block" : "none";
  if (hit) { tip.textContent = data.names[hit[1]][0] + ": " + (hit[3] / 1e3).toFixed(2) + " ms"; tip.style.left = Math.min(e.clientX + 12, innerWidth - 220) + "px"; tip.style.top = e.clientY + 14 + "px"; }
});
canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
addEventListener("resize", draw); draw();
</script></body></html>
"""
