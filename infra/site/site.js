// What axe-core finds in the theme: the search has no name, and the keyboard cannot scroll code and tables.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
const reach = () => {
  const regions = document.querySelectorAll("pre > code, .md-typeset__scrollwrap");
  regions.forEach((region) => region.getAttribute("tabindex") === "0" || region.setAttribute("tabindex", "0"));
};
reach();
// The theme wraps tables later, and removes the attribute from code that it takes for short.
const changes = { attributeFilter: ["tabindex"], childList: true, subtree: true };
new MutationObserver(reach).observe(document.querySelector("article"), changes);
