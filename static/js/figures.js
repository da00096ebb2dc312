// Draws the Plotly figures that the page has as JSON, in its theme, and again after a change of the theme.
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

  if (!window.Plotly) return; // the text of the chart stays
  draw();
  new MutationObserver(draw).observe(root, { attributes: true, attributeFilter: ["data-bs-theme"] });
})();
