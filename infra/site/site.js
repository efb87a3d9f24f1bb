// What axe-core finds in the theme: the search has no name, and the keyboard cannot scroll code and tables.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
const reach = () =>
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((region) => (region.tabIndex = 0));
reach();
// The theme wraps tables later.
new MutationObserver(reach).observe(document.querySelector("article"), { childList: true, subtree: true });
