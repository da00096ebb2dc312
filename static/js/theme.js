// Runs before the page is drawn: uses the stored theme, else the theme of the system.
(function () {
  "use strict";
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem("theme");
    } catch (error) {
      return null; // no access to storage: use the theme of the system
    }
  }

  function wanted() {
    const choice = stored();
    return choice === "light" || choice === "dark" ? choice : system.matches ? "dark" : "light";
  }

  function apply() {
    root.dataset.bsTheme = wanted();
    const dash = window.dash_clientside;
    if (dash && dash.set_props && document.getElementById("charts")) {
      dash.set_props("theme", { data: wanted() });
    }
  }

  apply();
  system.addEventListener("change", apply);

  // The charts read the theme at the start; apply() sends them every change.
  window.dash_clientside = Object.assign(window.dash_clientside || {}, { console: { theme: wanted } });

  document.addEventListener("DOMContentLoaded", function () {
    const button = document.getElementById("theme-toggle");
    if (!button) return;
    button.hidden = false;
    const label = () => {
      const dark = wanted() === "dark";
      button.textContent = dark ? "☀ Light" : "☾ Dark";
      button.setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
    };
    label();
    button.addEventListener("click", function () {
      try {
        localStorage.setItem("theme", wanted() === "dark" ? "light" : "dark");
      } catch (error) {
        return;
      }
      apply();
      label();
    });
  });
})();
