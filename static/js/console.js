// Small comforts; every page works without them.
(function () {
  "use strict";
  // A form that was sent is not sent twice, and says that it is at work.
  document.addEventListener("submit", function (event) {
    const button = event.submitter || event.target.querySelector("button[type=submit]");
    if (event.defaultPrevented || !button || event.target.method === "get") return;
    setTimeout(function () {
      button.disabled = true;
      if (button.dataset.busy) button.textContent = button.dataset.busy;
    });
  });
  // Coming back by the back button finds the form usable again.
  window.addEventListener("pageshow", function (event) {
    if (!event.persisted) return;
    document.querySelectorAll("button[disabled][type=submit]").forEach((button) => (button.disabled = false));
  });
})();
