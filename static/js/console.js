// Optional improvements; every page works without them.
(function () {
  "use strict";
  // Disable the button of a sent form, and show its busy text.
  document.addEventListener("submit", function (event) {
    const button = event.submitter || event.target.querySelector("button[type=submit]");
    if (event.defaultPrevented || !button || event.target.method === "get") return;
    setTimeout(function () {
      button.disabled = true;
      if (button.dataset.busy) button.textContent = button.dataset.busy;
    });
  });
  // Enable the buttons again after the back button.
  window.addEventListener("pageshow", function (event) {
    if (!event.persisted) return;
    document.querySelectorAll("button[disabled][type=submit]").forEach((button) => (button.disabled = false));
  });
})();
