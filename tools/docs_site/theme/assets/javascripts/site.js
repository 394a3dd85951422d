// Blocks of code are landmarks, and screen readers tell landmarks apart by their names. Wide tables
// scroll, which needs the focus if there is no mouse.
new MutationObserver(() => {
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => {
    nav.setAttribute("aria-label", `Code ${index + 1}`);
  });
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((table) => {
    table.setAttribute("tabindex", "0");
  });
}).observe(document.documentElement, { childList: true, subtree: true });
