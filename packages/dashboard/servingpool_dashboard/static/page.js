// Theme, search by key, and what must outlast a refresh.
"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  const theme = byId("theme");
  const other = () => (root.dataset.theme === "dark" ? "light" : "dark");
  const named = () => (theme.textContent = other() === "dark" ? "Dark theme" : "Light theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = other();
    localStorage.setItem("theme", root.dataset.theme);
    document.dispatchEvent(new Event("themed"));
  });
  document.addEventListener("themed", named);
  named();

  const live = byId("live");
  const going = (on) => {
    live.setAttribute("aria-pressed", String(on));
    live.textContent = on ? "Live updates on" : "Live updates off";
  };
  live.hidden = byId("past") !== null; // what was does not change
  going(true);
  live.addEventListener("click", () => going(live.getAttribute("aria-pressed") !== "true"));

  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = byId("q");
    event.preventDefault();
    if (search) {
      search.focus();
      search.select();
    } else {
      location.assign("/#q");
    }
  });
  if (location.hash === "#q" && byId("q")) byId("q").focus();

  // The poll of a page that is not looked at, or that was told to stand still, is left out.
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const polled = ["table", "now", "pods"].includes(event.detail.elt.id);
    if (polled && (live.getAttribute("aria-pressed") !== "true" || document.hidden)) event.preventDefault();
  });

  const gone = byId("gone");
  const said = (text) => {
    if (gone.textContent !== text) gone.textContent = text;
    gone.hidden = text === "";
  };
  document.body.addEventListener("htmx:sendError", () =>
    said("`servingpool dashboard` does not answer: it has stopped. This page shows what it said last."));
  document.body.addEventListener("htmx:responseError", (event) =>
    said(`The dashboard answered ${event.detail.xhr.status}. This page shows what it said last.`));
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) said("");
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const said = button.firstChild;
    try {
      await navigator.clipboard.writeText(button.dataset.copy); // which there is on localhost and over https alone
      said.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      said.textContent = "Selected";
    }
    setTimeout(() => (said.textContent = "Copy"), 2000);
  });

  // A narrow screen stacks the cells of a row, and each says what it is.
  const labelled = () => document.querySelectorAll(".wide table").forEach((table) => {
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.innerText.replace(/\u00ad/g, "").replace(/\s+/g, " "));
    [...table.tBodies[0].rows].forEach((row) =>
      [...row.cells].forEach((cell, number) => (cell.dataset.label = names[number])));
  });
  labelled();

  // A refresh replaces what it shows: how far a wide table was scrolled, and what was unfolded, stays.
  let scrolled = {};
  let unfolded = {};
  document.body.addEventListener("htmx:beforeSwap", () => {
    scrolled = {};
    unfolded = {};
    document.querySelectorAll(".wide").forEach((each) => (scrolled[each.id] = each.scrollLeft));
    document.querySelectorAll("details").forEach((each) => (unfolded[each.id] = each.open));
  });
  const restore = () => {
    labelled();
    document.querySelectorAll(".wide").forEach((each) => (each.scrollLeft = scrolled[each.id] || 0));
    document.querySelectorAll("details").forEach((each) => (each.open = unfolded[each.id] || false));
  };
  document.body.addEventListener("htmx:afterSwap", restore);
  document.body.addEventListener("htmx:oobAfterSwap", restore);
})();
