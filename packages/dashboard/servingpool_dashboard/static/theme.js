// In the head and not deferred: the page must not be drawn in the other theme first.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = () => {
    const kept = localStorage.getItem("theme");
    document.documentElement.dataset.theme = kept || (dark.matches ? "dark" : "light");
    document.dispatchEvent(new Event("themed"));
  };
  dark.addEventListener("change", set);
  set();
})();
