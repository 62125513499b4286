// What htmx does not do: charts, and what is shown while the stream of changes is lost.
(() => {
  "use strict";

  const say = (text, isLost) => {
    const shown = document.getElementById("stream");
    shown.textContent = text;
    shown.classList.toggle("lost", isLost);
  };

  document.addEventListener("htmx:sseError", () => say("Not live: connecting again", true));
  document.addEventListener("htmx:sseOpen", () => say("Live", false));

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const drawn = new WeakSet();

  // A chart is an element with its data as JSON: {"x": [seconds], "series": [{"label", "values", "fill"}]}.
  const draw = (element) => {
    const { x, series, unit } = JSON.parse(element.dataset.chart);
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const colours = ["--bar", "--good", "--warn", "--bad"].map(colour);
    element.replaceChildren();
    drawn.add(element);
    new uPlot(
      {
        width: Math.max(element.clientWidth, 260),
        height: 180,
        cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.1)] } },
        axes: [axis, { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }],
        series: [
          {},
          ...series.map((one, i) => ({
            label: one.label,
            stroke: colours[i % colours.length],
            fill: one.fill ? colours[i % colours.length] + "33" : undefined,
            width: 2,
            points: { show: false },
            paths: uPlot.paths.stepped({ align: 1 }),
            value: (_, value) => (value == null ? "" : `${value} ${unit}`),
          })),
        ],
      },
      [x, ...series.map((one) => one.values)],
      element,
    );
  };

  const drawAll = (root) => root.querySelectorAll("[data-chart]").forEach(draw);
  const drawNew = () => document.querySelectorAll("[data-chart]").forEach((one) => drawn.has(one) || draw(one));
  document.addEventListener("htmx:load", drawNew);
  // htmx:load comes some time after new content is shown: a chart would be blank in between.
  document.addEventListener("htmx:afterSwap", drawNew);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(document));
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => drawAll(document), 200);
  });
})();
