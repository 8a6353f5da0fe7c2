// What processes use of their machines, and what each link carries.
"use strict";

function bytes(value) {
  for (const [scale, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])
    if (value >= scale) return `${+(value / scale).toPrecision(3)} ${unit}`;
  return `${Math.round(value)} B`;
}

// Of an accelerator its memory and how busy it is; of a CPU the process's memory and cores.
function usedText(use) {
  if (!use) return "\u2013";
  const own = `${bytes(use.memory)} \u00b7 ${+use.cores.toPrecision(2)} cores`;
  if (!use.device) return own;
  return `${bytes(use.device[0])} of ${bytes(use.device[1])}` + (use.busy === null ? "" : ` \u00b7 ${percent(use.busy)}`);
}

function useFigures(use) {
  if (!use) return [];
  const device = use.device ? [["device memory", `${bytes(use.device[0])} of ${bytes(use.device[1])}`]] : [];
  if (use.busy !== null) device.push(["device busy", percent(use.busy)]);
  return [...device, ["memory", bytes(use.memory)], ["cores busy", use.cores.toFixed(2)]];
}

function linkRows(body, links) {
  const most = Math.max(1, ...links.map((link) => link.rate[0] + link.rate[1]));
  while (body.children.length > links.length) body.lastChild.remove();
  links.forEach((link, n) => {
    let row = body.children[n];
    if (!row) {
      row = element("tr");
      cell(row, "link", "th", body).scope = "row";
      for (const kind of ["", "", "strip", "", "", "part"]) cell(row, kind, "td", body);
      const track = element("div", "track");
      track.setAttribute("role", "img");
      track.append(element("div", "fill"));
      row.children[3].append(track);
      body.append(row);
    }
    const sum = link.rate[0] + link.rate[1], texts = {
      0: `${link.party} \u2013 ${link.other}`, 1: bytes(link.rate[0]) + "/s", 2: bytes(link.rate[1]) + "/s",
      4: bytes(link.most) + "/s", 5: bytes(link.bytes[0]), 6: bytes(link.bytes[1]),
    };
    for (const [k, text] of Object.entries(texts)) if (row.children[k].textContent !== text) row.children[k].textContent = text;
    const track = row.children[3].firstChild;
    track.firstChild.style.width = (100 * sum / most).toFixed(1) + "%";
    track.setAttribute("aria-label", `${bytes(sum)} a second, ${percent(sum / most)} of the busiest link`);
  });
}

function showLinks(links, count) {
  $("links").hidden = !links.length;
  set("links-count", count > links.length ? `The ${links.length} busiest of ${whole(count)}.` : "");
  linkRows($("link-rows"), links);
}
