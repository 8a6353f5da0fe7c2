// What stands beside the picture of the run: how far it is, alerts, settings, logs, and one worker on its own.
"use strict";

const LOG_MS = 2000, KINDS = { worker: "Slow worker", server: "Server or link", throughput: "Throughput", loss: "Loss", stuck: "No progress", failed: "Failed" };
const BELOW = new Set(["worker", "server"]);
const panels = { told: new Set(), log: "", logAt: 0 };

function showProgress(progress) {
  const known = progress.done !== null;
  $("progress").hidden = !known;
  if (known) {
    $("progress").firstElementChild.style.width = (100 * progress.done).toFixed(2) + "%";
    $("progress").setAttribute("aria-valuenow", Math.round(100 * progress.done));
    $("progress").title = `${percent(progress.done)} done`;
  }
  for (const [id, text] of [
    ["left", progress.left_s === null ? "" : clock(progress.left_s)],
    ["epoch", progress.epoch === null ? "" : progress.epoch.toFixed(progress.epoch < 10 ? 2 : 1)],
    ["learning-rate", progress.rate === null ? "" : progress.rate && progress.rate < 1e-4 ? progress.rate.toExponential() : String(progress.rate)],
  ]) {
    $(id).parentElement.hidden = !text;
    set(id, text);
  }
}

// ---- alerts --------------------------------------------------------------------------------------------
function showAlerts(alerts, hook) {
  // Who holds whom up is said at length below.
  const lines = alerts.map(({ kind, text, at }) => [KINDS[kind] || kind, `${BELOW.has(kind) ? "" : text + " "}Since ${clock(at)}.`]);
  if (hook) lines.push(["Hook", hook]);
  $("alerts-box").hidden = !lines.length;
  const shown = lines.map((line) => line.join(" ")).join("\n");
  if (shown !== panels.shown) {
    panels.shown = shown;
    $("alerts").replaceChildren(...lines.map(([kind, text]) => {
      const row = element("li");
      row.append(element("b", "", kind), text);
      return row;
    }));
  }
  const active = new Set(alerts.map((alert) => alert.kind)), fresh = alerts.filter((alert) => !panels.told.has(alert.kind));
  fresh.forEach(onDesktop);
  // Read aloud when it begins, and not with every change of a number in it.
  if (fresh.length) set("alerts-said", fresh.map((alert) => `${KINDS[alert.kind] || alert.kind}: ${alert.text}`).join(" "));
  panels.told = active;
  $("notify").hidden = !("Notification" in window) || Notification.permission !== "default";
}
function onDesktop(alert) {
  if ("Notification" in window && Notification.permission === "granted") {
    new Notification(`Paceline: ${KINDS[alert.kind] || alert.kind}`, { body: alert.text, tag: alert.kind });
  }
}
$("notify").addEventListener("click", () => Notification.requestPermission());

// ---- settings and logs ---------------------------------------------------------------------------------
function showSettings(settings) {
  $("settings-card").hidden = !settings.length;
  $("settings").replaceChildren(...settings.flatMap(([flag, value]) => [element("dt", "", flag), element("dd", "", value)]));
}

async function showLog() {
  if (!document.hidden && page.state) {
    try {
      const log = await get(`/log?name=${encodeURIComponent(panels.log)}`);
      $("log-card").hidden = !log.names.length;
      const names = ["", ...log.names], select = $("log-name");
      if (select.options.length !== names.length) {
        select.replaceChildren(...names.map((name) => new Option(name || "the latest", name, false, name === panels.log)));
      }
      const box = $("log"), atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
      set("log", log.lines.join("\n"));
      if (atEnd) box.scrollTop = box.scrollHeight;
    } catch (error) { /* the page says already that it has lost its run */ }
  }
  clearTimeout(panels.timer);
  panels.timer = setTimeout(showLog, LOG_MS);
}
$("log-name").addEventListener("change", () => { panels.log = $("log-name").value; showLog(); });
setTimeout(showLog, 300);

// ---- one worker ----------------------------------------------------------------------------------------
function openOwnPage() {
  const found = /^#worker=(\d+)$/.exec(location.hash);
  page.worker = found ? Number(found[1]) : -1;
  if (found) panels.log = `worker-${found[1]}`;
  pollNow();
  showLog();
}

function showOwnPage(own) {
  $("own-page").hidden = !own;
  if (!own) return;
  const row = own.row;
  set("own-title", `Worker ${row.rank}` + (row.here ? "" : ", which is gone"));
  const figures = [
    ["device", [row.device, row.host].filter(Boolean).join(" on ") || "\u2013"], ["now", row.why || row.at],
    ["step", milliseconds(row.step_ms)], ["of its own", milliseconds(row.own_ms)],
    ["median of all", own.median_ms === null ? "\u2013" : milliseconds(own.median_ms)],
    ["times the median", own.times === null ? "\u2013" : String(own.times)],
    ["an exchange costs", milliseconds(own.exchanges_ms)], ["waiting", percent(row.shares[2])], ["samples/s", whole(row.rate)],
    ["steps", whole(row.steps)], ["samples", `${compact(own.samples)} (${(100 * row.part).toFixed(1)}%)`],
    ["staleness", row.staleness ? `${row.staleness[0]}, at most ${row.staleness[1]}` : "\u2013"], ...useFigures(row.use),
  ];
  $("own-figures").replaceChildren(...figures.map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", "", name), element("dd", "", value));
    return box;
  }));
  const canvas = $("own-strip");
  canvas.setAttribute("aria-label", spoken(row.shares));
  drawStrip(canvas, row.strip, colours());
  set("own-strip-title", page.state ? `${spoken(row.shares)}; ${clock(page.state.strip[0])} to ${clock(page.state.strip[1])}` : "");
  $("own-links-box").hidden = !own.links.length;
  linkRows($("own-links"), own.links);
  $("own-events").replaceChildren(...own.events.map(eventRow));
}
