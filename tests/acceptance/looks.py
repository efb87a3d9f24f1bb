"""What tests ask of a page in Chromium: scripts, and what each gives."""

from __future__ import annotations

OVERLAPS = """(() => {
  const shown = [...document.querySelectorAll("text")].filter(each => each.getClientRects().length);
  const boxes = shown.map(each => [each.textContent, each.getBoundingClientRect(), each]);
  const meet = (a, b) =>
    a.left < b.right - 2 && b.left < a.right - 2 && a.top < b.bottom - 6 && b.top < a.bottom - 6;
  const size = (each) => parseFloat(getComputedStyle(each).fontSize);
  return {
    wide: boxes.filter(([, box]) => box.right > innerWidth || box.left < 0).map(([said]) => said),
    small: boxes.filter(([, , each]) => size(each) < 12).map(([said]) => said),
    meeting: boxes.flatMap(([said, box], at) =>
      boxes.slice(at + 1).filter(([, other]) => meet(box, other)).map(([other]) => [said, other])),
    count: boxes.length,
    ground: getComputedStyle(document.querySelector(".paper")).fill,
    scrolls: document.documentElement.scrollWidth > innerWidth,
  };
})()"""
"""Of a picture opened by itself: texts that are wider than the window, smaller than 12 px or one over
another, how many there are, its ground, and whether the window scrolls sideways."""
FIRST_SCREEN = """(told => {
  const whole = (box) => box.width && box.height && box.top >= 0 && box.left >= 0
    && box.bottom <= innerHeight && box.right <= innerWidth;
  const holds = (each, said) => each.innerText?.includes(said);
  const shown = (box, each) => {
    if (!each) return true;
    const around = each.getBoundingClientRect(), clips = getComputedStyle(each).overflowX === "hidden";
    return (!clips || (box.left >= around.left - 1 && box.right <= around.right + 1))
      && shown(box, each.parentElement);
  };
  const seen = (each) => {
    const box = each.getBoundingClientRect();
    if (!shown(box, each.parentElement)) return false;
    const top = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
    return whole(box) && top && (each.contains(top) || top.contains(each));
  };
  return told.filter(said => ![...document.body.querySelectorAll("*")].some(each =>
    holds(each, said) && ![...each.children].some(child => holds(child, said)) && seen(each)));
})(%s)"""
"""Of a list of texts those that nothing in the window shows whole."""
TO_THE_TOP = "document.querySelectorAll('[data-testid=base-layout]').forEach(each => each.scrollTo(0, 0))"
PICTURE = """(() => {
  const img = document.querySelector("[data-testid=image-attachment-content] img");
  const own = img.getBoundingClientRect();
  let box = own, cut = "", scrolls = false;
  for (let each = img.parentElement; each && each !== document.body; each = each.parentElement) {
    const around = each.getBoundingClientRect(), how = getComputedStyle(each).overflowX;
    if (how === "visible" || (box.left >= around.left - 1 && box.right <= around.right + 1)) continue;
    if (box.left < around.left - 1 || (how !== "auto" && how !== "scroll")) cut = each.outerHTML;
    scrolls = true;
    box = around;
  }
  const wide = box.left < 0 || box.right > innerWidth;
  return {cut, wide, scrolls, width: own.width, height: own.height, own: img.naturalHeight, src: img.src};
})()"""
"""Of a scenario's picture: what cuts it at a side where nobody can scroll to; whether it, or what scrolls it,
leaves the window; whether it scrolls; its size (px), and its own height (px): where it has its own height it
is not scaled, nor is its text."""
AXE = """axe.run(document, {resultTypes: ["violations"], elementRef: true}).then(found => ({
  passes: found.passes.length,
  violations: found.violations.flatMap(rule => rule.nodes.map(node => [
    rule.id, !!node.element?.closest(%s), node.html.slice(0, 300),
  ])),
}))"""
"""What axe-core, loaded before, says of a page: the number of rules that hold, and of each element that
breaks one which it is, whether a selector matches it or what it is in, and its HTML."""
