// The runs beside this one, and two or more of them in one chart, also while they go on.
"use strict";

const RUNS_MS = 5000, CURVES_MS = 2000, HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"];
const runs = { chosen: new Set(), curves: {}, rows: [] };

async function showRuns() {
  let pause = RUNS_MS;
  if (!document.hidden && page.state) {
    try {
      runs.rows = (await get("/runs")).runs;
      if (runs.chosen.size) {
        pause = CURVES_MS;
        runs.curves = await get("/curves?" + [...runs.chosen].map((name) => "runs=" + encodeURIComponent(name)).join("&"));
      } else runs.curves = {};
      listRuns();
    } catch (error) { /* the page says already that it has lost its run */ }
  }
  clearTimeout(runs.timer);
  runs.timer = setTimeout(showRuns, page.state ? pause : 500);
}

function hue(name) { return HUES[[...runs.chosen].indexOf(name) % HUES.length]; }

function listRuns() {
  $("runs-card").hidden = runs.rows.length < 2;
  const body = $("run-rows");
  while (body.children.length > runs.rows.length) body.lastChild.remove();
  runs.rows.forEach((run, n) => {
    let row = body.children[n];
    if (!row) {
      row = element("tr");
      for (const kind of ["pick", "device", "device", "", "", "", "", "device"]) cell(row, kind, "td", body);
      const pick = element("input");
      pick.type = "checkbox";
      pick.addEventListener("change", () => {
        pick.checked ? runs.chosen.add(pick.value) : runs.chosen.delete(pick.value);
        showRuns();
      });
      row.firstChild.append(pick, element("span", "key"));
      body.append(row);
    }
    const curve = runs.curves[run.name], last = curve && curve.points[curve.points.length - 1];
    const accuracy = run.accuracy ?? (last && last[1]), samples = run.samples ?? (curve && curve.samples), seconds = run.seconds ?? (curve && curve.now);
    const pick = row.firstChild.firstChild, chosen = runs.chosen.has(run.name);
    pick.value = run.name;
    pick.checked = chosen;
    pick.disabled = !chosen && runs.chosen.size >= HUES.length;
    pick.setAttribute("aria-label", `compare ${run.name}`);
    row.firstChild.lastChild.style.background = chosen ? hue(run.name) : "none";
    [run.name + (run.own ? " (this page)" : ""), run.scheme, accuracy ? accuracy.toFixed(3) : "\u2013", seconds ? clock(seconds) : "\u2013",
      samples ? compact(samples) : "\u2013", samples && seconds ? whole(samples / seconds) : "\u2013",
      run.ended || (curve && curve.ended) || "goes on"].forEach((text, k) => {
      if (row.children[k + 1].textContent !== text) row.children[k + 1].textContent = text;
    });
  });
  drawCompared();
}

function drawCompared() {
  const names = [...runs.chosen].filter((name) => runs.curves[name]), box = $("compared");
  box.hidden = !names.length;
  if (!names.length) return;
  // A run of a language model has losses alone.
  const index = names.some((name) => runs.curves[name].points.some((point) => point[1] !== null && point[1] > 0)) ? 1 : 2;
  const lines = names.map((name) => ({
    name, points: runs.curves[name].points.filter((point) => point[index] !== null).map((point) => [point[0], point[index]]), hue: hue(name),
  }));
  const values = lines.flatMap((line) => line.points.map((point) => point[1]));
  const target = page.about && page.about[index === 1 ? "target" : "target_loss"];
  if (target) values.push(target);
  lines[0].target = target;
  const least = Math.min(...values, 1), low = index === 1 && least >= 0.2 ? Math.floor(10 * least) / 10 : 0;
  const high = index === 1 ? 1 : Math.max(0.01, ...values);
  const until = Math.max(0.1, ...names.map((name) => runs.curves[name].now));
  for (const line of lines) Object.assign(line, { low, high, format: index === 1 ? (value) => value.toFixed(low > 0.85 ? 2 : 1) : compact });
  const last = lines.map((line) => `${line.name} ${line.points.length ? line.points[line.points.length - 1][1] : "\u2013"}`).join(", ");
  drawChart(box, lines, until, `${index === 1 ? "Accuracy" : "Loss"}: ${last}`);
}
setTimeout(showRuns, 600);
