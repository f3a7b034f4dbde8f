/* Lazy figures that follow the theme: <figure class="bk-plot"> holds <div class="bk-plot-target"> and its
   Plotly specification in <script type="application/json">. Plotly is fetched from this site, once, when the first
   figure comes near the window. */
(function () {
  const site = document.currentScript.src.replace(/_static\/book\.js.*$/, "");
  let loading = null;

  function loadPlotly() {
    if (window.Plotly) return Promise.resolve();
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = site + "vendor/plotly.min.js";
      script.onload = resolve;
      script.onerror = reject;
      document.head.appendChild(script);
    });
    return loading;
  }

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const text = style.getPropertyValue("--pst-color-text-base").trim();
    const line = style.getPropertyValue("--pst-color-border").trim();
    const changes = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": text };
    const axes = Object.keys(layout || {}).filter((key) => /^[xy]axis\d*$/.test(key));
    for (const axis of new Set(["xaxis", "yaxis", ...axes])) {
      changes[axis + ".gridcolor"] = line;
      changes[axis + ".zerolinecolor"] = line;
    }
    return changes;
  }

  const target = (figure) => figure.querySelector(".bk-plot-target");

  async function draw(figure) {
    if (figure.dataset.state) return;
    figure.dataset.state = "drawing";
    await loadPlotly();
    const spec = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
    const config = { responsive: true, displaylogo: false };
    await Plotly.newPlot(target(figure), spec.data, spec.layout, config);
    await Plotly.relayout(target(figure), themed(spec.layout));
    figure.dataset.state = "drawn";
  }

  document.addEventListener("DOMContentLoaded", () => {
    const figures = [...document.querySelectorAll("figure.bk-plot")];
    if (!figures.length) return;
    const near = new IntersectionObserver(
      (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => draw(e.target)),
      { rootMargin: "200px" },
    );
    figures.forEach((figure) => near.observe(figure));
    const repaint = () =>
      figures
        .filter((figure) => figure.dataset.state === "drawn")
        .forEach((figure) => Plotly.relayout(target(figure), themed(target(figure).layout)));
    new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  });
})();
