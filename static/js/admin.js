// Django's filters of two lists label a <span>, which has no role that may be labelled. They are made on "load".
"use strict";
addEventListener("load", () => setTimeout(() => {
  document.querySelectorAll("span.search-label-icon[aria-label]").forEach((icon) => icon.setAttribute("role", "img"));
}));
