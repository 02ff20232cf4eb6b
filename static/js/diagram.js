// Inside the sandboxed frame: takes {source, colours} from the page around it, draws, and answers with
// {height} or with {error}. It trusts nothing it is given and can reach nothing.
"use strict";
(() => {
  const LOCKED = ["secure", "securityLevel", "startOnLoad", "maxTextSize", "maxEdges", "suppressErrorRendering", "theme",
    "themeVariables", "themeCSS", "fontFamily", "altFontFamily", "dompurifyConfig", "htmlLabels", "darkMode", "fontSize"];
  const tell = (message) => parent.postMessage(message, "*");
  // Mermaid cleans its result, but measures labels as HTML before: what the policy would refuse is made plain text here,
  // so that nothing is even tried. It reads entities as the marks they stand for, hence another mark that looks alike.
  // Arrows and <<stereotypes>> stay.
  const harmless = (source) => source
    .replace(/[#&](lt|0*60|x0*3c);?/gi, "\u2039")
    .replace(/(?<!<)<(?=[a-z!?/])(?!br\s*\/?>)/gi, "\u2039")
    .replace(/\burl\s*\(/gi, "url#40;")
    .replace(/(@\{[^}]*?)\bimg\s*:/gi, "$1alt:");
  const height = () => Math.ceil(document.documentElement.getBoundingClientRect().height);
  let drawn = 0;

  function configure({ bg, panel, hover, ink, quiet, line, mark, tint, warn, dark }) {
    document.body.style.background = bg;
    mermaid.initialize({
      startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, maxTextSize: 20000, maxEdges: 300,
      secure: LOCKED, theme: "base", darkMode: dark, htmlLabels: false, flowchart: { htmlLabels: false },
      fontFamily: "system-ui, sans-serif", fontSize: 13,
      themeVariables: {
        darkMode: dark, fontSize: "13px", fontFamily: "system-ui, sans-serif", background: bg, mainBkg: panel,
        primaryColor: panel, primaryTextColor: ink, primaryBorderColor: line, secondaryColor: tint, secondaryTextColor: ink,
        secondaryBorderColor: mark, tertiaryColor: hover, tertiaryTextColor: ink, tertiaryBorderColor: line,
        lineColor: quiet, textColor: ink, titleColor: ink, nodeBorder: line, clusterBkg: bg, clusterBorder: line,
        edgeLabelBackground: bg, noteBkgColor: tint, noteTextColor: ink, noteBorderColor: mark, actorBkg: panel,
        actorBorder: line, actorTextColor: ink, actorLineColor: line, signalColor: quiet, signalTextColor: ink,
        labelBoxBkgColor: panel, labelBoxBorderColor: line, labelTextColor: ink, loopTextColor: ink,
        activationBkgColor: hover, activationBorderColor: line, sequenceNumberColor: bg, errorBkgColor: bg, errorTextColor: warn,
      },
    });
  }

  async function draw(source, colours) {
    const id = `d${++drawn}`;
    configure(colours);
    try {
      const { svg } = await mermaid.render(id, harmless(source));
      if (id !== `d${drawn}`) return;
      document.body.innerHTML = svg;
      document.querySelectorAll("a").forEach((link) => { // would lead out of the frame
        for (const name of ["href", "xlink:href", "target"]) link.removeAttribute(name);
      });
      tell({ height: height() });
    } catch (error) {
      tell({ error: String(error?.message || error).split("\n").slice(0, 2).join(" ").slice(0, 200) });
    }
  }

  addEventListener("message", (event) => {
    if (event.source === parent && typeof event.data?.source === "string") draw(event.data.source, event.data.colours);
  });
  new ResizeObserver(() => { if (document.querySelector("body > svg")) tell({ height: height() }); }).observe(document.documentElement);
  if (window.mermaid) tell({ ready: true }); else tell({ error: "the drawing library did not load" });
})();
