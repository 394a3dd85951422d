// The theme adds a landmark to each block of code; a screen reader tells them apart by their names.
new MutationObserver(() => {
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => {
    nav.setAttribute("aria-label", `Code ${index + 1}`);
  });
}).observe(document.documentElement, { childList: true, subtree: true });
