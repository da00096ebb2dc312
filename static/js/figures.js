// Draws the Plotly figures that a page carries as JSON, in the theme of the page, and again when it is switched.
(function () {
  "use strict";
  const root = document.documentElement;
  const config = { responsive: true, displayModeBar: false };

  function draw() {
    const theme = root.dataset.bsTheme === "dark" ? "dark" : "light";
    for (const box of document.querySelectorAll("[data-figure]")) {
      const figure = JSON.parse(document.getElementById(box.dataset.figure).textContent)[theme];
      box.querySelectorAll(".in-words").forEach((text) => text.remove());
      window.Plotly.react(box, figure.data, figure.layout, config);
    }
  }

  if (!window.Plotly) return; // the words of the chart stay
  draw();
  new MutationObserver(draw).observe(root, { attributes: true, attributeFilter: ["data-bs-theme"] });
})();
