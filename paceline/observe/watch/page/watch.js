// Asks twice a second for what has changed and shows it. All that comes from the run is set as text.
"use strict";

const POLL_MS = 500, QUIET_MS = 2000, TALL_FROM = 30, MARGIN_ROWS = 6, REPEAT_MS = 15000;
const $ = (id) => document.getElementById(id);
const page = { sort: "slow", curve: -1, events: -1, about: null, points: [], saidFor: null, saidAt: 0, state: null, worker: -1 };

function element(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => Math.round(100 * share) + "%";
const milliseconds = (ms) => !ms ? "\u2013" : ms < 1000 ? `${+ms.toPrecision(3)} ms` : `${+(ms / 1000).toPrecision(3)} s`;
function clock(seconds) {
  if (seconds < 120) return seconds.toFixed(1) + " s";
  const minutes = Math.floor(seconds / 60), rest = String(Math.floor(seconds % 60)).padStart(2, "0");
  return minutes < 60 ? `${minutes} min ${rest} s` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}
function set(id, text) { if ($(id).textContent !== text) $(id).textContent = text; }

// ---- asking --------------------------------------------------------------------------------------------
async function get(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function poll() {
  if (page.asking) { page.again = true; return; }
  page.asking = true;
  let pause = document.hidden ? QUIET_MS : POLL_MS;
  try {
    // Until somebody has trained it may not be settled which scheme it is.
    if (!page.about || !page.state || !page.about.settled) { page.about = await get("/about"); showAbout(page.about); }
    page.about.settled = Boolean(page.about.scheme && page.state && page.state.samples);
    const [first, count] = visible();
    const state = await get(`/state?sort=${page.sort}&first=${first}&count=${count}&curve=${page.curve}&events=${page.events}` + (page.worker < 0 ? "" : `&worker=${page.worker}`));
    const another = page.state && page.state.run !== state.run;
    page.state = state;
    if (another) {  // the next run of a race: nothing of the last one is known any more
      Object.assign(page, { about: null, curve: -1, events: -1, points: [], saidFor: null, again: true });
    } else show(state);
    if (state.ended) pause = QUIET_MS;
  } catch (error) {
    problem(page.about ? `The page has lost its run. \u201cpaceline watch ${page.about.run}\u201d shows it again.` : String(error));
    if (!page.state || !page.state.ended) set("status", "not connected");
    $("status").classList.remove("live");
    pause = QUIET_MS;
  }
  page.asking = false;
  page.timer = setTimeout(poll, page.again ? 0 : pause);
  page.again = false;
}
function pollNow() { clearTimeout(page.timer); poll(); }

function problem(text) { $("problem").hidden = !text; set("problem", text); }

// ---- showing -------------------------------------------------------------------------------------------
function showAbout(about) {
  document.title = `${about.scheme || "run"} \u2013 Paceline`;
  set("scheme", about.scheme || "Paceline");
  set("summary", [about.summary, about.model && (about.data ? `${about.model} on ${about.data}` : about.model)].filter(Boolean).join(" \u00b7 "));
  set("run", about.run);
  set("may", about.control ? "with controls" : "read-only");
  showSettings(about.settings || []);
  set("paper", about.paper);
  $("algorithm").hidden = !about.box.length;
  $("box").replaceChildren(...about.box.map((line) => {
    const row = element("div", "line");
    for (const piece of line) {
      const place = element("span", piece.at.length ? "piece place" : "piece");
      place.append(element("span", "place-text", piece.text));
      if (piece.at.length) {
        const dots = element("span", "dots");
        dots.dataset.at = piece.at.join(" ");
        place.append(dots);
      }
      row.append(place);
    }
    if (!line.length) row.append(element("span", "piece", " "));
    return row;
  }));
}

function show(state) {
  problem(state.problem);
  const { tone } = state.headline, failed = tone === "failed";
  set("status", failed ? "failed" : state.ended ? `over: ${state.ended}` : state.read < 0.99 ? `reading ${percent(state.read)}` : "live");
  $("status").classList.toggle("live", !state.ended);
  for (const id of ["status", "progress", "holdup"]) $(id).classList.toggle("failed", failed);
  set("elapsed", clock(state.now));
  set("samples", compact(state.samples));
  set("rate", whole(state.rate));
  set("goodput", state.goodput === null ? "\u2013" : percent(state.goodput));
  set("count", state.here === state.workers ? whole(state.workers) : `${whole(state.here)} of ${whole(state.workers)}`);
  set("strip-title", `where the time went, ${clock(state.strip[0])} to ${clock(state.strip[1])}`);
  set("stop-command", (page.about && page.about.stop) || "");
  $("stop").hidden = Boolean(state.ended) || !$("stop-command").textContent;
  showProgress(state.progress);
  showAlerts(state.alerts, state.hook);
  showOwnPage(state.worker);
  showControls(state);
  showHoldup(state);
  $("collapse").hidden = !state.collapse;
  set("collapse", state.collapse && `${state.collapse} ${(page.about && page.about.way_out) || ""}`);
  showCharts(state);
  showBands(state.bands);
  showRows(state);
  showStanding(state);
  showGroups(state.groups);
  showServers(state.servers);
  showLinks(state.links, state.link_count);
  if (state.events) showEvents(state.events);
  page.events = state.event_count;
}

function showHoldup(state) {
  const told = state.headline, about = [told.title, told.kind, ...told.ranks].join(",");
  set("holdup-title", told.title);
  set("sentence", told.sentence);
  $("holdup").classList.toggle("held", told.tone === "held");
  // Spoken when something else is to blame, and not with every change of a number.
  if (about !== page.saidFor && Date.now() - page.saidAt > (page.saidFor === null ? 0 : REPEAT_MS / 5)) {
    page.saidFor = about; page.saidAt = Date.now();
    set("announce", `${told.title}: ${told.sentence}`);
  }
  $("cost").hidden = told.without === undefined || !told.ranks.length;
  if (!$("cost").hidden) {
    const others = state.here - told.ranks.length === 1 ? "the other one" : "the others";
    bars("cost-bars", [[others, told.others, true], [`without ${shortName(told.ranks)}`, told.without, false]]);
  }
  $("foretold").hidden = !state.forecast.length || told.tone === "failed";
  $("withheld").hidden = !state.withheld;
  set("withheld", state.withheld);
  const own = page.about && page.about.scheme;
  bars("foretold-bars", state.forecast.map((row) => [row.scheme, row.rate, row.scheme === own, row.kind]));
}
const shortName = (ranks) => ranks.length === 1 ? `worker ${ranks[0]}` : `${ranks.length} workers`;

function bars(id, rows) {
  const most = Math.max(1, ...rows.map((row) => row[1]));
  const box = $(id);
  while (box.children.length > rows.length) box.lastChild.remove();
  rows.forEach(([label, value, own, title], n) => {
    let bar = box.children[n];
    if (!bar) {
      bar = element("div", "bar");
      const track = element("div", "track");
      track.append(element("div", "fill"));
      bar.append(element("span", "label"), track, element("span", "number"));
      box.append(bar);
    }
    bar.classList.toggle("own", Boolean(own));
    bar.title = title || "";
    bar.children[0].textContent = label;
    bar.children[1].firstChild.style.width = (100 * value / most).toFixed(1) + "%";
    bar.children[2].textContent = whole(value);
  });
}

// The axis is scaled to the data, and begins at 0 where some of it is near 0.
function accuracyLine(points, target) {
  const values = points.map((point) => point[1]).concat(target ? [target] : []);
  const least = Math.min(1, ...values), low = least < 0.2 ? 0 : Math.floor(10 * least) / 10;
  return { name: "accuracy", low, high: 1, format: (value) => value.toFixed(low > 0.85 ? 2 : 1), points, target };
}

function showCharts(state) {
  if (state.curve) page.points = state.curve;
  page.curve = state.curve_count;
  const until = state.now || 1, points = page.points, last = points[points.length - 1];
  set("accuracy", last && last[1] !== null ? last[1].toFixed(3) : "\u2013");
  if (points.length) {
    $("curve-card").hidden = false;
    const known = (at) => points.filter((point) => point[at] !== null).map((point) => [point[0], point[at]]);
    const { target, target_loss } = page.about || {};
    const loss = Math.max(target_loss || 0, ...points.map((point) => point[2]));
    drawChart($("curve"), [
      accuracyLine(known(1), target),
      { name: "loss", high: loss, format: compact, points: known(2), target: target_loss },
    ], until, `Accuracy ${last[1] ?? "\u2013"} and loss ${last[2] ?? "\u2013"} after ${clock(last[0])}`);
  }
  $("curve-card").hidden = !points.length;
  $("rates-card").classList.toggle("wide", !points.length);
  const [begin, width, rates] = state.rates;
  const shown = rates.map((rate, n) => [begin + (n + .5) * width, rate]);
  const high = Math.max(1, ...shown.map((point) => point[1]));
  drawChart($("rates"), [{ high: high * 1.05, format: compact, points: shown, area: true }], until,
    `${whole(state.rate)} samples a second now, at most ${whole(high)}`);
}

// On a phone each value stands under its name: that of its column.
function cell(row, className, kind, body) {
  const made = element(kind || "td", className);
  made.setAttribute("role", kind === "th" ? "rowheader" : "cell");
  const heads = body ? body.closest("table").querySelectorAll("thead th") : [];
  if (heads[row.children.length]) made.dataset.label = heads[row.children.length].textContent.trim();
  row.append(made);
  return made;
}

function stripCell(row, body) {
  const canvas = element("canvas");
  canvas.setAttribute("role", "img");
  cell(row, "strip", "td", body).append(canvas);
  return canvas;
}

function showBands(bands) {
  $("bands-box").hidden = !bands.length;
  const body = $("bands"), palette = colours();
  while (body.children.length > bands.length) body.lastChild.remove();
  bands.forEach((band, n) => {
    let row = body.children[n];
    if (!row) {
      row = element("tr");
      for (const kind of ["", "", "strip", "", "rate"]) kind === "strip" ? stripCell(row, body) : cell(row, kind, "td", body);
      body.append(row);
    }
    const [slowest, fastest] = band.step_ms.map(milliseconds);
    row.children[0].textContent = whole(band.workers);
    row.children[1].textContent = slowest === fastest ? slowest : `${slowest} \u2013 ${fastest}`;
    const canvas = row.children[2].firstChild;
    canvas.setAttribute("aria-label", spoken(band.shares));
    drawStrip(canvas, band.strip, palette);
    row.children[3].textContent = percent(band.shares[2]);
    row.children[4].textContent = whole(band.rate);
  });
}

const spoken = (shares) => ACTIVITIES.map((activity, n) => `${activity} ${percent(shares[n])}`).join(", ");

// ---- the rows that are in sight ------------------------------------------------------------------------
function rowPixels() {
  const row = $("rows").querySelector("tr.worker");
  return (row && row.getBoundingClientRect().height) || 36;
}

function visible() {
  const box = $("scroll");
  if (!box.classList.contains("tall")) return [0, TALL_FROM];
  const first = Math.max(0, Math.floor(box.scrollTop / rowPixels()) - MARGIN_ROWS);
  return [first, Math.min(100, Math.ceil(box.clientHeight / rowPixels()) + 2 * MARGIN_ROWS)];
}

function rowFor(index) {
  const body = $("rows");
  let row = body.querySelectorAll("tr.worker")[index];
  if (!row) {
    row = element("tr", "worker");
    cell(row, "", "th", body).scope = "row";
    row.firstChild.append(element("a"));
    for (const kind of ["device", "step", "strip", "wait", "rate", "part", "rounds", "staleness", "use", "why"])
      kind === "strip" ? stripCell(row, body) : cell(row, kind, "td", body);
    body.insertBefore(row, body.lastChild);
  }
  return row;
}

function showRows(state) {
  const tall = state.workers > TALL_FROM, body = $("rows"), palette = colours();
  $("scroll").classList.toggle("tall", tall);
  $("table").setAttribute("aria-rowcount", state.workers + 1);
  if (!body.firstChild) {
    for (const _ of [0, 1]) {
      const spacer = element("tr", "spacer");
      spacer.setAttribute("aria-hidden", "true");
      cell(spacer).colSpan = 11;
      body.append(spacer);
    }
  }
  body.firstChild.firstChild.style.height = state.first * rowPixels() + "px";
  body.lastChild.firstChild.style.height = Math.max(0, state.workers - state.first - state.rows.length) * rowPixels() + "px";
  const rows = body.querySelectorAll("tr.worker");
  for (let n = state.rows.length; n < rows.length; n++) rows[n].remove();
  state.rows.forEach((worker, n) => fill(rowFor(n), worker, state.first + n + 2, palette));
}

function fill(row, worker, index, palette) {
  row.setAttribute("aria-rowindex", index);
  row.classList.toggle("straggler", worker.straggler);
  row.classList.toggle("gone", !worker.here);
  const texts = {
    1: worker.host && worker.device ? `${worker.device} \u00b7 ${worker.host}` : worker.device || worker.host,
    2: milliseconds(worker.step_ms), 4: percent(worker.shares[2]), 5: whole(worker.rate), 6: (100 * worker.part).toFixed(1) + "%",
    7: worker.rounds === null ? "\u2013" : String(worker.rounds),
    8: worker.staleness ? `${worker.staleness[0]} / ${worker.staleness[1]}` : "\u2013",
    9: usedText(worker.use),
    10: worker.here ? worker.why || worker.at : "gone",
  };
  for (const [n, text] of Object.entries(texts)) if (row.children[n].textContent !== text) row.children[n].textContent = text;
  const link = row.firstChild.firstChild;
  if (link.textContent !== String(worker.rank)) {
    link.textContent = String(worker.rank);
    link.href = `#worker=${worker.rank}`;
    link.title = `more about worker ${worker.rank}`;
  }
  row.children[1].title = texts[1];
  row.children[10].title = texts[10];
  const canvas = row.children[3].firstChild;
  canvas.setAttribute("aria-label", spoken(worker.shares));
  drawStrip(canvas, worker.strip, palette);
}

// ---- the algorithm's box -------------------------------------------------------------------------------
function showStanding(state) {
  const few = state.workers <= 40, stragglers = new Set(state.headline.ranks);
  for (const place of $("box").querySelectorAll(".dots")) {
    const made = [];
    let all = 0;
    for (const activity of place.dataset.at.split(" ")) {
      const { count, ranks } = state.standing[activity];
      all += count;
      const dots = few ? ranks : ranks.slice(0, Math.ceil(40 * count / state.workers));
      for (const rank of dots) {
        const dot = element("span", `dot ${activity}${few ? "" : " small"}`, few ? String(rank) : "");
        if (few && stragglers.has(rank)) dot.classList.add("straggler");
        if (few) dot.title = `worker ${rank}: ${activity}`;
        made.push(dot);
      }
    }
    if (!few) made.push(element("span", "tally", `${whole(all)} workers`));
    place.replaceChildren(...made);
  }
}

// ---- servers and events --------------------------------------------------------------------------------
function showServers(servers) {
  $("servers").hidden = !servers.length;
  const body = $("server-rows"), palette = colours();
  while (body.children.length > servers.length) body.lastChild.remove();
  servers.forEach((server, n) => {
    let row = body.children[n];
    if (!row) {
      row = element("tr");
      for (const kind of ["", "", "", "strip", "", "", "detail", "use"]) kind === "strip" ? stripCell(row, body) : cell(row, kind, "td", body);
      body.append(row);
    }
    row.classList.toggle("straggler", server.state !== "");
    row.classList.toggle("gone", server.state === "lost");
    const name = [`${server.shard}`, server.host && `(${server.host})`, server.state].filter(Boolean).join(" ");
    const late = `${server.late_ms} ms`;
    [name, whole(server.version), server.rate, null, late, server.staleness, whole(server.dropped), usedText(server.use)].forEach((value, k) => {
      if (value !== null) row.children[k].textContent = String(value);
    });
    const canvas = row.children[3].firstChild;
    canvas.setAttribute("aria-label", `${server.rate} updates a second`);
    drawLoad(canvas, server.load, palette);
  });
}

function showGroups(groups) {
  $("groups").hidden = !groups.length;
  const body = $("group-rows"), palette = colours();
  while (body.children.length > groups.length) body.lastChild.remove();
  groups.forEach((group, n) => {
    let row = body.children[n];
    if (!row) {
      row = element("tr");
      cell(row, "", "th", body).scope = "row";
      for (const kind of ["device", "", "strip", "", "rate"]) kind === "strip" ? stripCell(row, body) : cell(row, kind, "td", body);
      body.append(row);
    }
    const more = group.workers - group.ranks.length;
    row.children[0].textContent = group.ranks.join(", ") + (more ? ` and ${whole(more)} more` : "");
    row.children[1].textContent = group.hosts.join(", ");
    row.children[2].textContent = milliseconds(group.step_ms);
    const canvas = row.children[3].firstChild;
    canvas.setAttribute("aria-label", spoken(group.shares));
    drawStrip(canvas, group.strip, palette);
    row.children[4].textContent = percent(group.shares[2]);
    row.children[5].textContent = whole(group.rate);
  });
}

function showEvents(events) {
  if (events.length) $("events").replaceChildren(...events.map(eventRow));
  else $("events").replaceChildren(element("li", "none", "Nothing yet: everybody is there, and nothing had to be decided."));
}
function eventRow(event) {
  const row = element("li"), what = element("span", "", `${event.who}: ${event.what}`);
  if (event.why) what.append(" ", element("span", "because", `\u2013 ${event.why}`));
  row.append(element("time", "", clock(event.at)), what);
  return row;
}

// ---- what the reader does ------------------------------------------------------------------------------
for (const button of document.querySelectorAll("button[data-sort]")) {
  button.addEventListener("click", () => {
    page.sort = button.dataset.sort;
    $("scroll").scrollTop = 0;
    sorted();
    pollNow();
  });
}
function sorted() {
  for (const button of document.querySelectorAll("button[data-sort]")) {
    const own = button.dataset.sort === page.sort;
    if (own) button.closest("th").setAttribute("aria-sort", page.sort === "rank" ? "ascending" : "descending");
    else button.closest("th").removeAttribute("aria-sort");
  }
}
let scrolled = 0;
$("scroll").addEventListener("scroll", () => { clearTimeout(scrolled); scrolled = setTimeout(pollNow, 60); });
window.addEventListener("resize", () => page.state && show(page.state));
document.addEventListener("zoomed", () => { if (page.state) { showCharts(page.state); drawCompared(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.state && show(page.state));
window.addEventListener("hashchange", () => openOwnPage());
// All scripts of the page have run by then.
document.addEventListener("DOMContentLoaded", () => { sorted(); openOwnPage(); });
