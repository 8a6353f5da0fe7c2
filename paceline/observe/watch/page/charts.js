// Drawing, and nothing else: strips on canvases, curves as SVG. Texts from the run are set as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const ACTIVITIES = ["computing", "communicating", "waiting"];

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue("--" + name).trim();
  return { computing: of("computing"), communicating: of("communicating"), waiting: of("waiting"), none: of("none") };
}

function fitted(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * scale));
  const height = Math.max(1, Math.round(canvas.clientHeight * scale));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  return canvas.getContext("2d");
}

// Two characters a bin: tenths computing, tenths communicating, from "0" to ":"; ".." where nothing is known.
function drawStrip(canvas, text, palette) {
  const ink = fitted(canvas), { width, height } = canvas, bins = text.length / 2;
  ink.fillStyle = palette.none;
  ink.fillRect(0, 0, width, height);
  for (let n = 0; n < bins; n++) {
    if (text[2 * n] === ".") continue;
    const left = Math.floor(n * width / bins), right = Math.floor((n + 1) * width / bins);
    const computing = (text.charCodeAt(2 * n) - 48) / 10, communicating = (text.charCodeAt(2 * n + 1) - 48) / 10;
    let bottom = height;
    for (const [activity, share] of [["computing", computing], ["communicating", communicating],
      ["waiting", 1 - computing - communicating]]) {
      const top = activity === "waiting" ? 0 : Math.round(bottom - share * height);
      if (share > 0.001) { ink.fillStyle = palette[activity]; ink.fillRect(left, top, right - left, bottom - top); }
      bottom = top;
    }
  }
}

// One character a bin: tenths of the largest.
function drawLoad(canvas, text, palette) {
  const ink = fitted(canvas), { width, height } = canvas;
  ink.fillStyle = palette.none;
  ink.fillRect(0, 0, width, height);
  ink.fillStyle = palette.communicating;
  for (let n = 0; n < text.length; n++) {
    const left = Math.floor(n * width / text.length), right = Math.floor((n + 1) * width / text.length);
    const tall = (text.charCodeAt(n) - 48) / 10 * height;
    ink.fillRect(left, height - tall, Math.max(1, right - left), tall);
  }
}

function shape(kind, attributes, text) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function compact(value) {
  for (const [scale, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (value >= scale) return (value / (unit === "k" ? 1e3 : scale)).toFixed(value < 10 * scale && unit !== "k" ? 1 : 0) + unit;
  return value >= 10 ? Math.round(value).toLocaleString("en") : String(Math.round(value * 100) / 100);
}

function ticks(high, count, low = 0) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough) || 1;
  const found = [];
  for (let at = Math.ceil(low / step - 0.001) * step; at <= high + step / 1000; at += step) found.push(at);
  return found;
}

// Lines are {points: [[x, y], ...], low, high, name, format, area, target}; the first has the left axis, the second the
// right one. A line with a target has it as a dashed line by its axis.
function drawChart(box, lines, until, spoken) {
  const alike = lines.some((line) => line.hue);  // of several runs: all have the left axis
  const width = Math.max(260, box.clientWidth), height = 220, left = 44, right = lines.length > 1 && !alike ? 44 : 12;
  const top = 18, bottom = 26;
  const [from, to] = box.zoom || [0, until || 1];
  const x = (at) => left + (width - left - right) * (at - from) / (to - from);
  lines = lines.map((line) => ({ ...line, points: line.points.filter(([at]) => from <= at && at <= to) }));
  const y = (value, high, low = 0) => height - bottom - (height - top - bottom) * Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken });
  for (const at of ticks(to, width < 420 ? 4 : 7, from)) {
    svg.append(shape("text", { x: x(at), y: height - 8, "text-anchor": "middle" }, compact(at) + " s"));
  }
  lines.forEach((line, index) => {
    if (index && alike) return;
    for (const value of ticks(line.high, 4, line.low)) {
      const at = y(value, line.high, line.low);
      if (!index) svg.append(shape("line", { class: "axis", x1: left, x2: width - right, y1: at, y2: at }));
      svg.append(shape("text", index
        ? { x: width - right + 6, y: at + 4 }
        : { x: left - 6, y: at + 4, "text-anchor": "end" }, line.format(value)));
    }
  });
  for (const line of lines) {
    if (!line.target) continue;
    const at = y(line.target, line.high, line.low);
    svg.append(shape("line", { class: "target", x1: left, x2: width - right, y1: at, y2: at }));
    svg.append(shape("text", { x: left + 4, y: at - 4 }, "target " + (line === lines[0] ? "" : line.name + " ") + line.target));
  }
  lines.forEach((line, index) => {
    if (!line.points.length) return;
    const path = line.points.map(([at, value], n) => `${n ? "L" : "M"}${x(at).toFixed(1)} ${y(value, line.high, line.low).toFixed(1)}`).join("");
    if (line.area) {
      const [first, last] = [line.points[0][0], line.points[line.points.length - 1][0]];
      svg.append(shape("path", { class: "area", d: `${path}L${x(last)} ${y(0, 1)}L${x(first)} ${y(0, 1)}Z` }));
    }
    const drawn = shape("path", { class: line.area ? "area-line" : index && !alike ? "second" : "curve", d: path });
    if (line.hue) drawn.style.stroke = line.hue;
    svg.append(drawn);
    if (alike) return;
    if (lines.length > 1) svg.append(shape("text", index
      ? { class: "label-second", x: width - right, y: 10, "text-anchor": "end" }
      : { class: "label-first", x: left, y: 10 }, line.name));
  });
  box.replaceChildren(svg);
  readable(box, svg, lines, x, { left, top, bottom: height - bottom, right: width - right, from, to, whole: until || 1 });
}

// The values at one moment: under the mouse, or by the arrow keys when the chart has the focus.
function readable(box, svg, lines, x, room) {
  const moments = [...new Set(lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
  const show = (at) => {
    svg.querySelectorAll(".cursor, .readout").forEach((old) => old.remove());
    box.cursor = at;
    if (at === null || !moments.length) return;
    const near = (points) => points.reduce((best, point) => Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best);
    const values = lines.filter((line) => line.points.length).map((line) => {
      const [, value] = near(line.points);
      return (line.name ? line.name + " " : "") + (line.exact ? line.exact(value) : +value.toPrecision(4));
    });
    const text = `${+at.toPrecision(3)} s: ${values.join(", ")}`;
    svg.append(shape("line", { class: "cursor", x1: x(at), x2: x(at), y1: room.top, y2: room.bottom }));
    svg.append(shape("text", { class: "readout", x: Math.min(x(at) + 6, room.right - 6 * text.length), y: room.top + 12 }, text));
    box.setAttribute("aria-label", text);
  };
  const nearest = (at) => moments.reduce((best, moment) => Math.abs(moment - at) < Math.abs(best - at) ? moment : best, moments[0]);
  const moment = (event) => {
    const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
    const share = ((event.clientX - frame.left) * scale - room.left) / (room.right - room.left);
    return room.from + Math.max(0, Math.min(1, share)) * (room.to - room.from);
  };
  const zoom = (from, to) => {
    box.zoom = from <= 0 && to >= room.whole || to <= from ? null : [Math.max(0, from), Math.min(room.whole, to)];
    box.dispatchEvent(new CustomEvent("zoomed", { bubbles: true }));
  };
  // Dragged over: from there to there. Twice clicked: all of it.
  box.onpointerdown = (event) => { box.dragged = moment(event); };
  box.onpointerup = (event) => {
    const [from, to] = [box.dragged ?? 0, moment(event)].sort((a, b) => a - b);
    if (box.dragged !== null && to - from > 0.03 * (room.to - room.from)) zoom(from, to);
    box.dragged = null;
  };
  box.ondblclick = () => zoom(0, room.whole);
  box.onpointermove = (event) => show(nearest(moment(event)));
  box.onpointerleave = () => show(null);
  box.onblur = () => show(null);
  box.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], closer = { "+": 0.5, "-": 2, Escape: Infinity }[event.key];
    if (closer) {
      const middle = box.cursor ?? (room.from + room.to) / 2, half = closer * (room.to - room.from) / 2;
      zoom(middle - half, middle + half);
    }
    if (!step || !moments.length) return;
    event.preventDefault();
    const from = box.cursor === null || box.cursor === undefined ? (step > 0 ? -1 : moments.length) : moments.indexOf(nearest(box.cursor));
    show(moments[Math.max(0, Math.min(moments.length - 1, from + step))]);
  };
  box.tabIndex = 0;
  box.setAttribute("role", "group");
  if (box.cursor !== null && box.cursor !== undefined) show(nearest(box.cursor));
}
