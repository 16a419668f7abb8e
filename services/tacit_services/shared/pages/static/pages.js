// Live progress: what a page marks with data-events is fetched anew when the service says that it changed.
// Where no stream comes through (an old proxy), every ten seconds instead; without scripts, by reloading.
"use strict";
(() => {
  const PERIOD_MS = 10000;
  const follow = (element) => {
    const source = new EventSource(element.dataset.events);
    const timer = setInterval(() => {
      if (!document.contains(element)) { clearInterval(timer); source.close(); return; }
      if (source.readyState !== EventSource.OPEN) refresh();
    }, PERIOD_MS);
    const refresh = () => htmx.trigger(element, "refresh");
    source.addEventListener("changed", refresh);
    source.addEventListener("ended", () => { source.close(); clearInterval(timer); refresh(); });
  };
  document.querySelectorAll("[data-events]").forEach(follow);

  document.querySelectorAll("[data-copy]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  });
})();
