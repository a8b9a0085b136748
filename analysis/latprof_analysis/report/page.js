"use strict";
/* Draws the figures of the page, each when it comes into sight.
 *
 * A figure's table stands in the page as CSV text, beside one specification for
 * each scale; colours are names that the style sheet resolves. */
(() => {
  const shared = JSON.parse(document.getElementById("shared").textContent);
  const views = new Map(); // element of a chart -> its Vega view
  const ranges = new Map(); // figure -> [from, to] that its time axis shows
  window.latprofViews = views;

  /* The page's policy allows the script that comes out by its hash. */
  async function unpackVega() {
    const packed = atob(document.getElementById("vega").textContent);
    const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream()
      .pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }
  let unpacked = null;

  const drawingOf = (figure) =>
    JSON.parse(document.getElementById(`drawing-${figure.id}`).textContent);

  /* Vega's own reader of CSV makes code of the header, which the policy forbids. */
  function rowsOf({ values, format }) {
    const lines = [[]];
    for (const [, quoted, plain, end] of values.matchAll(/(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n|$)/g)) {
      lines.at(-1).push(quoted?.replaceAll('""', '"') ?? plain);
      if (end !== ",") lines.push([]);
    }
    const [columns, ...rows] = lines.filter((line) => line.length === lines[0].length);
    const typed = (cell, name) =>
      format.parse[name] !== "number" ? cell : cell === "" ? null : Number(cell);
    return rows.map((row) =>
      Object.fromEntries(columns.map((name, i) => [name, typed(row[i], name)]))
    );
  }

  const scaleOf = (figure) =>
    figure.querySelector(".switch input:checked")?.value;

  /* One after the other, so that two reasons to draw a figure draw it once. */
  const drawings = new Map();
  function draw(figure) {
    const before = drawings.get(figure) ?? (unpacked ??= unpackVega());
    const next = before.then(() =>
      figure.dataset.drawn === (scaleOf(figure) ?? "only") ? null : drawNow(figure)
    );
    drawings.set(figure, next);
    return next;
  }

  async function drawNow(figure) {
    const drawing = drawingOf(figure);
    const rows = rowsOf(drawing.data);
    const scale = scaleOf(figure);
    const places = [...figure.querySelectorAll(".view")];
    await Promise.all(
      drawing.charts.map((chart, i) =>
        drawChart(figure, places[i], rows, chart.scales, scale)
      )
    );
    figure.dataset.drawn = scale ?? "only";
  }

  async function drawChart(figure, place, rows, scales, scale) {
    const own = scales[scale] ?? Object.values(scales)[0];
    const room = shared.legend.find(([width]) => place.clientWidth < width);
    const columns = { name: "columns", value: room[1] };
    // on a phone the axis' names leave a legend no room but over them
    const anchor = room === shared.legend[0] ? "end" : "start";
    const legend = { ...shared.config.legend, layout: { top: { anchor, bounds: "full" } } };
    const spec = {
      ...own,
      width: "container",
      autosize: { type: "fit-x", contains: "padding" },
      data: { values: rows },
      config: { ...shared.config, legend },
      params: [...(own.params ?? []), columns],
    };
    views.get(place)?.finalize();
    // expressions are interpreted, so that the page's policy can forbid eval
    const { view } = await vegaEmbed(place, spec, {
      mode: "vega-lite", actions: false, renderer: "svg", ast: true,
      loader: { load: () => Promise.reject(new Error("nothing is fetched")) },
    });
    views.set(place, view);
    // names may be too long for so many beside each other: who reads needs all colours
    for (let n = room[1]; n > 1 && !hasWholeLegends(place); n--) {
      await view.signal("columns", n - 1).runAsync();
    }
    const range = ranges.get(figure);
    if (range) show(view, range);
    if (figure.querySelector(".zoom")) letDrag(figure, place, view);
  }

  function hasWholeLegends(place) {
    const room = place.getBoundingClientRect();
    return [...place.querySelectorAll(".role-legend-label, .role-legend-symbol")].every(
      (one) => {
        const { left, right } = one.getBoundingClientRect();
        return left >= room.left - 1 && right <= room.right + 1;
      }
    );
  }

  /* Zoom: all charts of a figure show the same span. */

  const show = (view, [from, to]) =>
    view.signal("from", from).signal("to", to).runAsync();

  const viewsOf = (figure) =>
    [...figure.querySelectorAll(".view")].map((e) => views.get(e)).filter(Boolean);

  function zoomTo(figure, range) {
    ranges.set(figure, range);
    for (const view of viewsOf(figure)) show(view, range);
  }

  function zoomBy(figure, way) {
    const [first, last] = wholeSpan(figure);
    let [from, to] = ranges.get(figure) ?? [first, last];
    const width = (to ?? last) - (from ?? first);
    from ??= first;
    to ??= last;
    if (way === "all") return zoomTo(figure, [null, null]);
    if (way === "in") [from, to] = [from + width / 4, to - width / 4];
    if (way === "out") [from, to] = [from - width / 2, to + width / 2];
    if (way === "back") [from, to] = [from - width / 2, to - width / 2];
    if (way === "on") [from, to] = [from + width / 2, to + width / 2];
    const shift = Math.max(0, first - from) - Math.max(0, to - last);
    zoomTo(figure, [Math.max(first, from + shift), Math.min(last, to + shift)]);
  }

  function wholeSpan(figure) {
    if (!figure.dataset.first) {
      const domains = viewsOf(figure).map((view) => view.scale("x").domain());
      figure.dataset.first = Math.min(...domains.map((d) => d[0]));
      figure.dataset.last = Math.max(...domains.map((d) => d[1]));
    }
    return [Number(figure.dataset.first), Number(figure.dataset.last)];
  }

  function letDrag(figure, place, view) {
    wholeSpan(figure);
    const across = (event) => {
      const left = place.querySelector("svg").getBoundingClientRect().left;
      const x = event.clientX - left - view.origin()[0];
      return Math.min(Math.max(x, 0), view.width());
    };
    const shade = document.createElement("div");
    shade.className = "shade";
    let start = null;
    place.onpointerdown = (event) => {
      start = across(event);
      place.append(shade);
      shade.style.width = "0";
      place.setPointerCapture(event.pointerId);
    };
    place.onpointermove = (event) => {
      if (start === null) return;
      const [a, b] = [start, across(event)].sort((p, q) => p - q);
      shade.style.left = `${a + view.origin()[0]}px`;
      shade.style.width = `${b - a}px`;
    };
    place.onpointercancel = () => {
      start = null;
      shade.remove();
    };
    place.onpointerup = (event) => {
      if (start === null) return;
      const ends = [start, across(event)].sort((p, q) => p - q);
      place.onpointercancel();
      // less is a click
      if (ends[1] - ends[0] < 8) return;
      zoomTo(figure, ends.map((px) => view.scale("x").invert(px)));
    };
    place.ondblclick = () => zoomBy(figure, "all");
  }

  /* Files */

  function save(figure) {
    const text = drawingOf(figure).data.values;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = `${figure.id}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /* Theme: what the system asks for, until someone chooses. */

  const root = document.documentElement;
  const darkAsked = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    (root.dataset.theme ?? (darkAsked.matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
  };
  button.hidden = false;
  button.onclick = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  };
  darkAsked.onchange = name;
  name();

  document.addEventListener("click", (event) => {
    const csv = event.target.closest(".csv");
    if (csv) save(document.getElementById(csv.dataset.figure));
    const zoom = event.target.closest("[data-zoom]");
    if (zoom) zoomBy(zoom.closest("figure"), zoom.dataset.zoom);
  });
  document.addEventListener("change", (event) => {
    if (event.target.closest(".switch")) draw(event.target.closest("figure"));
  });

  const figures = [...document.querySelectorAll("figure")];
  const inSight = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((e) => e.isIntersecting)) {
        inSight.unobserve(entry.target);
        draw(entry.target);
      }
    },
    { rootMargin: "600px" }
  );
  for (const figure of figures) inSight.observe(figure);

  // Tables that are wider than their place say so, as soon as they are to be seen.
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries)
      target.previousElementSibling.hidden = target.scrollWidth <= target.clientWidth;
  });
  for (const table of document.querySelectorAll(".scroll")) widths.observe(table);

  // Paper shows everything: what is folded, and what was never scrolled to.
  window.latprofDrawAll = async () => {
    for (const fold of document.querySelectorAll("details.fold,details.about"))
      fold.open = true;
    await Promise.all(figures.map(draw));
  };
  addEventListener("beforeprint", () => window.latprofDrawAll());
})();
