// Behaviour that HTML cannot give: theme, drawer, pane, composer, keys, copying and the answer stream.
// No framework, no build. Every page reads without it; every form posts without it.
"use strict";
(() => {
  const root = document.documentElement, body = document.body;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const store = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { value ? localStorage.setItem(key, value) : localStorage.removeItem(key); } catch { /* private mode */ } },
  };

  // --- messages to the reader
  let toastTimer;
  function say(text) {
    const toast = $("#toast");
    toast.textContent = text;
    toast.hidden = false;
    clearTimeout(toastTimer);
    toastTimer = setTimeout(() => { toast.hidden = true; }, 4000);
  }
  async function copy(text, what = "Copied.") {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "sr";
      body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    say(what);
  }
  body.addEventListener("htmx:responseError", (event) => {
    const status = event.detail.xhr.status;
    say(status === 404 ? "That is not here any more. Reload the page." : `The server answered ${status}. Try again.`);
  });
  body.addEventListener("htmx:sendError", () => say("The server did not answer. Check the connection, then try again."));

  // --- theme: system, light, dark
  const themes = ["", "light", "dark"], themeIcons = { "": "system", light: "sun", dark: "moon" };
  function setTheme(theme) {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    document.cookie = `theme=${theme};path=/;max-age=31536000;samesite=lax`;
    const button = $("[data-theme-toggle]");
    $("use", button)?.setAttribute("href", `${body.dataset.icons}#i-${themeIcons[theme]}`);
    redraw();
    button.setAttribute("aria-label", `Theme: ${theme || "as the system"}. Switch`);
  }

  // --- drawer and pane
  const pane = () => $("#pane");
  const app = $(".app");
  function toggleDrawer(open) {
    body.dataset.drawer = open ? "open" : "";
    $$("[data-toggle=drawer]").forEach((button) => button.setAttribute("aria-expanded", String(open)));
    if (open) $("#sidebar a, #sidebar button")?.focus();
  }
  function frame(kind) {
    app.classList.toggle("app--split", kind === "code");
    app.classList.toggle("app--trace", kind === "trace");
    body.dataset.pane = kind ? "open" : "";
    if (pane()) pane().hidden = !kind;
  }
  const kindOf = (url) => (/\/m\/[^/]+\/trace\//.test(url) ? "trace" : "code");

  async function openPane(url, { push = true } = {}) {
    if (!pane()) { location.href = url; return; }
    let response;
    try {
      response = await fetch(url, { headers: { "HX-Request": "true" } });
    } catch {
      say("The server did not answer. Check the connection, then try again.");
      return;
    }
    if (!response.ok || response.redirected) {
      if (response.redirected) location.href = url; else say("This passage cannot be opened any more.");
      return;
    }
    pane().innerHTML = await response.text();
    frame(kindOf(url));
    if (push) history.pushState({ pane: url }, "", url);
    paneReady();
  }
  function closePane({ push = true } = {}) {
    if (!pane() || pane().hidden) return false;
    frame("");
    pane().innerHTML = "";
    markCurrent();
    if (push && body.dataset.conversation) history.pushState({}, "", body.dataset.conversation);
    return true;
  }
  const topWithin = (part, box) => part.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop;
  function paneReady() {
    if (pane()) htmx.process(pane());
    markCurrent();
    const code = $("[data-code]");
    if (!code) return;
    const outline = $(".outline"), symbol = outline && $("[aria-current]", outline);
    if (symbol) outline.scrollTop = topWithin(symbol, outline) - outline.clientHeight / 2;
    const target = (location.hash && $(`#${CSS.escape(location.hash.slice(1).split("-")[0])}`, code)) || $(".hit", code);
    if (target) code.scrollTop = topWithin(target, code) - Math.min(code.clientHeight / 3, 120);
  }
  function markCurrent() {
    const here = location.pathname + location.search;
    $$("a.citation, .evidence a[href]").forEach((link) => {
      const same = link.pathname + link.search === here;
      link.toggleAttribute("aria-current", same);
      if (same) link.setAttribute("aria-current", "true");
      $(".flag", link)?.classList.toggle("flag--on", same && !link.classList.contains("citation"));
    });
  }
  addEventListener("popstate", () => {
    if (!body.dataset.conversation) return;
    if (location.pathname === body.dataset.conversation) closePane({ push: false });
    else openPane(location.href, { push: false });
  });

  // --- a chip that is pointed at shows its first lines
  const previews = new Map();
  let previewTimer;
  function previewHtml(link) {
    const url = link.href.replace("/blob/", "/preview/").split("#")[0];
    if (!previews.has(url)) {
      const asked = fetch(url, { headers: { "HX-Request": "true" } });
      previews.set(url, asked.then((response) => (response.ok && !response.redirected ? response.text() : "")).catch(() => ""));
    }
    return previews.get(url);
  }
  function beside(box, spot) { // below the spot, or above where there is no room
    box.hidden = false;
    const below = spot.bottom + 6 + box.offsetHeight < innerHeight;
    box.style.left = `${Math.max(8, Math.min(spot.left, innerWidth - box.offsetWidth - 8))}px`;
    box.style.top = `${below ? spot.bottom + 6 : Math.max(8, spot.top - box.offsetHeight - 6)}px`;
  }
  async function showPreview(link) {
    const html = await previewHtml(link), box = $("#preview");
    if (!html || !link.isConnected || !link.matches(":hover, :focus-visible")) return;
    if (link.title) { link.dataset.title = link.title; link.removeAttribute("title"); } // or the browser shows it on top
    box.innerHTML = html;
    link.setAttribute("aria-describedby", "preview");
    beside(box, link.getClientRects()[0] || link.getBoundingClientRect());
  }
  function hidePreview() {
    clearTimeout(previewTimer);
    $("#preview").hidden = true;
  }
  const previewable = (event) => event.target.closest?.("a.citation[href], .evidence a[data-n][href]");
  document.addEventListener("pointerover", (event) => {
    const link = event.pointerType === "mouse" && previewable(event);
    if (!link) return;
    clearTimeout(previewTimer);
    previewTimer = setTimeout(showPreview, 250, link);
  });
  document.addEventListener("pointerout", (event) => { if (previewable(event)) hidePreview(); });
  document.addEventListener("focusin", (event) => { const link = previewable(event); if (link) previewTimer = setTimeout(showPreview, 250, link); });
  document.addEventListener("focusout", (event) => { if (previewable(event)) hidePreview(); });
  document.addEventListener("scroll", hidePreview, true);

  // --- copies of cited code are counted, not what was copied
  function countCopy(from) {
    if (from.dataset.counted) post(from.dataset.counted);
  }
  document.addEventListener("copy", (event) => { const code = event.target.closest?.("[data-code]"); if (code) countCopy(code); });

  // --- what can be done with selected code
  let selectionTimer;
  function offerForSelection() {
    const selection = getSelection(), box = $("#selection");
    const code = selection.rangeCount && !selection.isCollapsed && selection.anchorNode.parentElement?.closest("[data-selection]");
    const lines = code && $$("li[id]", code).filter((line) => selection.containsNode(line, true)).map((line) => Number(line.id.slice(1)));
    if (!code || !lines.length) { box.hidden = true; return; }
    const word = String(selection).trim();
    const [similar, named] = $$("a", box);
    similar.href = `${code.dataset.selection}&lines=${lines[0]}-${lines.at(-1)}`;
    named.hidden = !/^[\p{L}_][\p{L}\p{N}_]{1,99}$/u.test(word);
    named.href = `${code.dataset.word}&name=${encodeURIComponent(word)}`;
    $("span", named).textContent = word.length > 24 ? `${word.slice(0, 23)}…` : word;
    beside(box, selection.getRangeAt(0).getBoundingClientRect());
  }
  document.addEventListener("selectionchange", () => { clearTimeout(selectionTimer); selectionTimer = setTimeout(offerForSelection, 200); });
  document.addEventListener("pointerdown", (event) => { if (event.target.closest("#selection")) event.preventDefault(); }); // keeps the selection

  // --- the divider remembers its place
  const setPaneWidth = (percent) => root.style.setProperty("--pane", `${Math.min(70, Math.max(22, percent))}vw`);
  if (store.get("pane")) setPaneWidth(Number(store.get("pane")));
  const paneWidth = () => Math.round((1000 * pane().getBoundingClientRect().width) / innerWidth) / 10;
  document.addEventListener("pointerdown", (event) => {
    const divider = event.target.closest("[data-divider]");
    if (!divider) return;
    event.preventDefault();
    divider.setPointerCapture(event.pointerId);
    const move = (moved) => setPaneWidth((100 * (innerWidth - moved.clientX)) / innerWidth);
    divider.addEventListener("pointermove", move);
    divider.addEventListener("pointerup", () => {
      divider.removeEventListener("pointermove", move);
      store.set("pane", String(paneWidth()));
      divider.setAttribute("aria-valuenow", String(Math.round(paneWidth())));
    }, { once: true });
  });

  // --- composer
  const composer = () => $("[data-composer]");
  const question = () => $("#q");
  const draftKey = () => `draft:${composer().dataset.composer}`;
  const grows = CSS.supports("field-sizing", "content");
  function grow() {
    if (grows || !question()) return;
    question().style.height = "auto";
    question().style.height = `${question().scrollHeight}px`;
  }
  const tokens = () => $$("[name=scope]", composer()).map((input) => input.value);
  function addChip(token) {
    if (tokens().includes(token)) return;
    const chip = document.createElement("span"), input = document.createElement("input"), button = document.createElement("button");
    chip.className = "chip";
    Object.assign(input, { type: "hidden", name: "scope", value: token });
    Object.assign(button, { type: "button", textContent: "×" });
    button.dataset.remove = "";
    button.setAttribute("aria-label", `Remove ${token}`);
    chip.append(input, token, button);
    $("[data-chips]", composer()).insertBefore(chip, $("[data-add-scope]"));
  }
  const word = () => {
    const before = question().value.slice(0, question().selectionStart);
    return (before.match(/(?:^|\s)((?:@|path!?:|lang:)\S*)$/) || [])[1] || "";
  };
  let asked = 0;
  async function completeWord() {
    const list = $("#completion"), typed = word(), ticket = ++asked;
    if (!typed) { list.hidden = true; return; }
    const query = new URLSearchParams([["typed", typed], ...tokens().map((token) => ["scope", token])]);
    const response = await fetch(`${question().dataset.complete}?${query}`, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (ticket !== asked || !response?.ok) return;
    list.innerHTML = await response.text();
    list.hidden = !list.children.length;
    question().setAttribute("aria-activedescendant", list.hidden ? "" : list.children[0].id);
  }
  function choose(item) {
    const area = question(), typed = word(), start = area.selectionStart - typed.length;
    area.setRangeText("", start, area.selectionStart, "end");
    addChip(item.dataset.token);
    $("#completion").hidden = true;
    area.focus();
    saveDraft();
  }
  function moveChoice(step) {
    const items = $$("#completion [role=option]");
    const next = (items.findIndex((item) => item.ariaSelected === "true") + step + items.length) % items.length;
    items.forEach((item, place) => item.setAttribute("aria-selected", String(place === next)));
    question().setAttribute("aria-activedescendant", items[next].id);
    items[next].scrollIntoView({ block: "nearest" });
  }
  const saveDraft = () => store.set(draftKey(), question().value);
  document.addEventListener("input", (event) => {
    if (event.target !== question()) return;
    grow();
    saveDraft();
    $("#composer-error").textContent = "";
    completeWord();
  });
  document.addEventListener("keydown", (event) => {
    if (event.target !== question() || event.isComposing) return;
    const list = $("#completion");
    if (!list.hidden && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      moveChoice(event.key === "ArrowDown" ? 1 : -1);
    } else if (!list.hidden && ["Tab", "Enter"].includes(event.key) && !event.shiftKey) {
      event.preventDefault();
      choose($("[aria-selected=true]", list));
    } else if (!list.hidden && event.key === "Escape") {
      event.stopImmediatePropagation();
      list.hidden = true;
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (!body.dataset.answering && question().value.trim()) composer().requestSubmit();
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.confirm && !confirm(form.dataset.confirm)) { event.preventDefault(); return; }
    if (form === composer() && !form.hasAttribute("hx-post")) {
      if (form.dataset.sent) { event.preventDefault(); return; }
      form.dataset.sent = "1";
      store.set(draftKey(), "");
    }
  }, true);
  addEventListener("pageshow", () => { if (composer()) delete composer().dataset.sent; });
  body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt !== composer() || event.detail.xhr.status !== 200) return; // 422 counts as successful to htmx
    question().value = "";
    saveDraft();
    grow();
    thread()?.scrollTo({ top: thread().scrollHeight });
  });
  body.addEventListener("htmx:afterSettle", start);

  // --- the answer stream. Each part says which characters it covers, so nothing can be written twice.
  const thread = () => $("#thread");
  const nearEnd = () => !thread() || thread().scrollHeight - thread().scrollTop - thread().clientHeight <= 48;
  function keepEnd(change) {
    const follow = nearEnd();
    change();
    if (follow && thread()) thread().scrollTop = thread().scrollHeight;
  }
  const showLastQuestion = () => [...document.querySelectorAll(".message--q")].pop()?.scrollIntoView({ block: "start" });
  const fragment = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  };
  // What is being written looks as it will when it is complete, so that nothing moves then: paragraphs, headings, lists
  // and code begin with their first line, inline code, bold words and chips are made as soon as their last character is
  // there. What was shown before is not touched again. Only the start of a line that could become a mark is held back.
  const MARKS = /`([^`\n]+)`|\*\*([^*`\n]+)\*\*|\[(\d{1,3})\]/, FENCE = /^ {0,3}(?:```|~~~) *(\S*)/;
  const ITEM = /^( *)([-*+]|\d{1,3}[.)]) +/, HEADING = /^#{1,6} +/, UNSURE = /^ *(?:[-*+]|\d{1,3}[.)]?|#{1,6}|`{1,2}|~{1,2}|(?:```|~~~).*)? *$/;
  function tailWriter(article) {
    const tail = $(".tail", article);
    let raw, held, atStart, afterBlank, open, fence, lists;
    function begin(name, parent = tail) {
      const element = parent.appendChild(document.createElement(name));
      open = element.appendChild(new Text());
      return element;
    }
    function beginCode(language) {
      const box = begin("figure"), header = document.createElement("header");
      box.className = "codebox";
      header.textContent = language || "Text";
      box.append(header);
      begin("pre", box);
    }
    function beginItem(indent, ordered) {
      while (lists.length && indent < lists.at(-1).indent) lists.pop();
      const name = ordered ? "ol" : "ul";
      let top = lists.at(-1);
      if (top && indent <= top.indent + 1 && top.list.localName !== name) { lists.pop(); top = lists.at(-1); }
      if (!top || indent > top.indent + 1) {
        const list = (top ? top.list.lastElementChild : tail).appendChild(document.createElement(name));
        lists.push(top = { indent, list });
      }
      begin("li", top.list);
    }
    // Opens what the line goes into; gives what of the line is shown, or null for a line that only says what follows.
    function beginLine(line) {
      const item = ITEM.exec(line), mark = FENCE.exec(line);
      if (fence) {
        if (mark && !mark[1]) { fence = false; lists = []; open = null; return null; }
        return (open.data && "\n") + line;
      }
      if (mark) { fence = true; beginCode(mark[1]); return null; }
      if (!line.trim()) { afterBlank = true; return null; }
      const fresh = afterBlank || !open;
      afterBlank = false;
      if (item && (lists.length || item[1].length < 4)) { beginItem(item[1].length, /\d/.test(item[2])); return line.slice(item[0].length); }
      if (HEADING.test(line)) { lists = []; begin("h4"); return line.replace(HEADING, ""); }
      if (fresh || open.parentNode.localName === "h4") {
        const inside = lists.length && line.startsWith(" ");
        if (!inside) lists = [];
        begin("p", inside ? lists.at(-1).list.lastElementChild : tail);
        return line;
      }
      return (open.data || open.previousSibling ? "\n" : "") + line;
    }
    function marked([whole, code, bold, number]) {
      if (number) return pendingChip(article, number) ?? whole;
      const element = document.createElement(code ? "code" : "strong");
      element.textContent = code ?? bold;
      return element;
    }
    function add(text) {
      open.appendData(text);
      for (let found; !fence && (found = MARKS.exec(open.data));) {
        const after = open.splitText(found.index);
        after.deleteData(0, found[0].length);
        after.before(marked(found));
        open = after;
      }
    }
    function write(text) {
      raw += text;
      held += text;
      while (held) {
        const end = held.indexOf("\n"), line = end < 0 ? held : held.slice(0, end);
        if (atStart && end < 0 && UNSURE.test(line)) return;
        const shown = atStart ? beginLine(line) : line;
        if (shown !== null) add(shown);
        atStart = end >= 0;
        held = held.slice(line.length + (atStart ? 1 : 0));
      }
    }
    function replace(text) {
      raw = held = "";
      atStart = true;
      afterBlank = fence = false;
      open = null;
      lists = [];
      tail.replaceChildren();
      write(text);
    }
    replace("");
    return { write, replace, written: () => raw };
  }
  function pendingChip(article, number) {
    const passage = $(`.evidence [data-n="${number}"]`, article);
    if (!passage) return null;
    const chip = document.createElement("span"), flag = document.createElement("span");
    const again = $(`.prose .citation[data-n="${number}"]`, article);
    Object.assign(chip, { className: again ? "citation citation--short" : "citation", title: passage.title || passage.dataset.title || "" });
    Object.assign(chip.dataset, { state: "pending", n: number });
    Object.assign(flag, { className: "flag", textContent: number });
    chip.append(flag, again ? "" : $(".mono", passage).textContent);
    return chip;
  }
  function signedOut(article) {
    const note = document.createElement("p"), link = document.createElement("a");
    Object.assign(note, { className: "banner mt", role: "status", textContent: "You have been signed out. The answer is stored. " });
    Object.assign(link, { className: "link", href: location.href, textContent: "Sign in to read it" });
    note.append(link);
    article.append(note);
    $(".prose", article).removeAttribute("data-state");
    delete body.dataset.answering;
  }
  function stream(article) {
    if (article.dataset.connected) return;
    article.dataset.connected = "1";
    body.dataset.answering = article.dataset.stopUrl;
    const blocks = $(".blocks", article), tail = tailWriter(article);
    let last = 0, length = 0, done = 0, tries = 0, source, quiet;
    const on = (name, handle) => source.addEventListener(name, (event) => {
      if (event.data === undefined) return; // a lost connection is an "error" too; `onerror` takes it
      last = Math.max(last, Number(event.lastEventId) || 0);
      tries = 0;
      listen();
      handle(JSON.parse(event.data));
    });
    function listen() { // a sleeping phone or a proxy may leave a dead connection that never fails
      clearTimeout(quiet);
      quiet = setTimeout(again, 45000);
    }
    const look = () => fetch(article.dataset.final, { headers: { "HX-Request": "true" } }).catch(() => null);
    async function again() {
      source.close();
      clearTimeout(quiet);
      if (!article.isConnected) return;
      if (tries > 1 && (await look())?.redirected) { signedOut(article); return; }
      setTimeout(connect, Math.min(8000, 250 * 2 ** tries++));
    }
    async function finish() {
      source.close();
      clearTimeout(quiet);
      const response = await look();
      if (response?.redirected) { signedOut(article); return; }
      if (!response?.ok) { setTimeout(finish, 2000); return; }
      const html = await response.text();
      if (article.isConnected) keepEnd(() => {
        const ready = fragment(html).firstElementChild;
        article.replaceWith(ready);
        htmx.process(ready);
      });
      // Passages arrive all at once: the reader begins with the best one, not with the last.
      if (document.querySelector(`#a-${article.dataset.answer}[data-passages]`)) showLastQuestion();
      if (!$("[data-stream]")) delete body.dataset.answering;
      markCurrent();
      drawDiagrams();
    }
    function connect() {
      source = new EventSource(`${article.dataset.stream}?after=${last}`);
      listen();
      source.onerror = again;
      on("stage", (data) => { $(".stages", article).innerHTML = data.html; });
      on("evidence", (data) => keepEnd(() => { $(".evidence", article).innerHTML = data.html; markCurrent(); }));
      on("text", (data) => {
        if (data.end <= length) return;
        const fresh = data.at >= length ? data.text : [...data.text].slice(length - data.at).join("");
        length = data.end;
        keepEnd(() => tail.write(fresh));
      });
      on("block", (data) => {
        if (data.end <= done) return;
        const rest = [...tail.written()].slice(data.end - done).join(""), next = rest.replace(/^\n+/, "");
        done = data.end + (rest.length - next.length);
        keepEnd(() => {
          tail.replace("");
          blocks.append(fragment(data.html));
          tail.write(next);
        });
      });
      ["done", "stopped", "error"].forEach((name) => on(name, finish));
    }
    connect();
  }
  // --- Mermaid diagrams: each in a frame that can reach nothing; what it says is checked like any other input
  const frames = new Map();
  function colours() {
    const probe = document.createElement("i");
    body.append(probe);
    const of = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
    const names = { bg: "bg", panel: "panel", hover: "hover", ink: "ink", quiet: "ink-3", line: "line-2", mark: "mark-line", tint: "mark-bg", warn: "warn" };
    const found = Object.fromEntries(Object.entries(names).map(([role, name]) => [role, of(name)]));
    probe.remove();
    return { ...found, dark: root.dataset.theme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches) };
  }
  function drawDiagrams() {
    $$("[data-mermaid]").forEach((box) => {
      const text = $("pre", box);
      if (box.dataset.mermaid || box.closest("[data-state=streaming]") || !text) return;
      box.dataset.mermaid = "waiting";
      const frame = document.createElement("iframe"), note = document.createElement("p"), details = document.createElement("details"), summary = document.createElement("summary");
      frame.setAttribute("sandbox", "allow-scripts");
      Object.assign(frame, { className: "diagram", title: "Diagram", loading: "lazy", src: body.dataset.diagram });
      Object.assign(note, { className: "dim small diagram-note", hidden: true });
      summary.textContent = "Text";
      details.append(summary, text);
      box.append(frame, note, details);
      const entry = { box, frame, note, details, source: text.textContent };
      frames.set(frame, entry);
      frame.addEventListener("load", () => { entry.timer = setTimeout(diagramFailed, 10000, entry, "it took too long"); });
    });
    frames.forEach((entry, frame) => { if (!frame.isConnected) frames.delete(frame); });
  }
  function diagramFailed(entry, why) {
    clearTimeout(entry.timer);
    entry.box.dataset.mermaid = "failed";
    entry.frame.remove();
    entry.note.hidden = false;
    entry.note.textContent = `This diagram could not be drawn: ${why}. Its text is below.`;
    entry.details.open = true;
  }
  addEventListener("message", ({ source, data }) => {
    const entry = [...frames.values()].find(({ frame }) => frame.contentWindow === source);
    if (!entry || typeof data !== "object" || !data) return;
    if (data.ready) source.postMessage({ source: entry.source, colours: colours() }, "*");
    else if (typeof data.error === "string") diagramFailed(entry, data.error.slice(0, 200).replace(/\.$/, ""));
    else if (Number.isFinite(data.height)) {
      clearTimeout(entry.timer);
      entry.box.dataset.mermaid = "drawn";
      keepEnd(() => { entry.frame.style.height = `${Math.min(2400, Math.max(40, data.height))}px`; });
    }
  });
  const redraw = () => frames.forEach(({ frame, source }) => frame.contentWindow?.postMessage({ source, colours: colours() }, "*"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  const post = (url) => fetch(url, {
    method: "POST",
    headers: { "HX-Request": "true", ...JSON.parse(body.getAttribute("hx-headers")) },
  }).catch(() => say("The server did not answer. Check the connection, then try again."));
  const stop = () => body.dataset.answering && post(body.dataset.answering);

  function start() {
    $$("[data-stream]").forEach(stream);
    drawDiagrams();
    if (!$("[data-stream]")) delete body.dataset.answering;
  }

  // --- clicks
  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    const plain = !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey && event.button === 0;
    let hit;
    $$("details.menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
    if ((hit = at("a.citation[href], .evidence a[data-n][href], a[data-pane-link]")) && plain && pane()) {
      event.preventDefault();
      hidePreview();
      $("#selection").hidden = true;
      openPane(hit.href);
    } else if (at("[data-close-pane]") && plain && body.dataset.conversation) {
      event.preventDefault();
      closePane();
    } else if (at("[data-theme-toggle]")) {
      setTheme(themes[(themes.indexOf(root.dataset.theme || "") + 1) % 3]);
    } else if (at("[data-toggle=drawer]")) {
      toggleDrawer(body.dataset.drawer !== "open");
    } else if ((hit = at("[data-copy-text]"))) {
      copy(hit.dataset.copyText);
      countCopy(hit);
    } else if ((hit = at("[data-copy]"))) {
      const box = hit.closest(".codebox");
      copy($("pre", box)?.textContent ?? $$(".code li", box).map((line) => line.lastElementChild.textContent).join("\n"));
    } else if ((hit = at("[data-copy-answer]"))) {
      copy($(".prose", hit.closest("article")).innerText, "Answer copied.");
    } else if ((hit = at("[data-remove]"))) {
      hit.closest(".chip").remove();
      question().focus();
    } else if (at("[data-add-scope]")) {
      question().focus();
      question().setRangeText(`${/\S$/.test(question().value) ? " " : ""}@`, question().value.length, question().value.length, "end");
      completeWord();
    } else if ((hit = at("#completion [role=option]"))) {
      choose(hit);
    } else if (at("[data-stop]")) {
      stop();
    } else if ((hit = at("[data-more]"))) {
      event.preventDefault();
      hit.remove();
    } else if ((hit = at("[data-question]")) && plain && question()) {
      event.preventDefault();
      question().value = hit.dataset.question;
      const scope = new URL(hit.href).searchParams.get("scope");
      if (scope) addChip(scope);
      grow();
      question().focus();
    } else if (at("[data-keys]")) {
      $("#keys").showModal();
    } else if ((hit = at("[data-close]"))) {
      hit.closest("dialog").close();
    }
  });

  // --- keys
  const citations = () => $$("a.citation[href]");
  let goes = false;
  function walk(step) {
    const links = citations();
    if (!links.length) return;
    const place = links.indexOf(document.activeElement);
    const next = place < 0 ? (step > 0 ? 0 : links.length - 1) : (place + step + links.length) % links.length;
    links[next].focus();
    links[next].scrollIntoView({ block: "nearest" });
  }
  const last = (selector) => $$(selector).at(-1);
  const keys = {
    n: () => $("[data-key=n]").click(),
    "/": () => { const field = $("#search-input"); if (field) { field.focus(); field.select(); } else location.href = $("[href='/search/']").href; },
    j: () => walk(1),
    k: () => walk(-1),
    o: () => { if (document.activeElement.matches("a.citation")) document.activeElement.click(); },
    t: () => { if (app.classList.contains("app--trace")) closePane(); else last("[data-trace]")?.click(); },
    y: () => { const button = $("[data-permalink]"); if (button) copy(button.dataset.copyText, "Permalink copied."); },
    c: () => last("[data-copy-answer]")?.click(),
    e: () => { const edit = last("[data-edit]"); if (edit) { edit.parentElement.open = true; $("textarea", edit.parentElement).focus(); } },
    r: () => last("[data-retry]")?.click(),
    "?": () => $("#keys").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || $("dialog[open]")) return;
    const typing = event.target.matches("input, textarea, select, [contenteditable]");
    if (event.key === "Escape") {
      if (!$("#preview").hidden) hidePreview();
      else if (body.dataset.drawer === "open") toggleDrawer(false);
      else if (body.dataset.answering && !(pane() && !pane().hidden && pane().contains(event.target))) stop();
      else if (!closePane() && typing) event.target.blur();
      return;
    }
    if (event.target.matches("[data-divider]") && ["ArrowLeft", "ArrowRight"].includes(event.key)) {
      setPaneWidth(paneWidth() + (event.key === "ArrowLeft" ? 2 : -2));
      store.set("pane", String(paneWidth()));
      event.target.setAttribute("aria-valuenow", String(Math.round(paneWidth())));
      return;
    }
    if (typing) return;
    if (goes) {
      goes = false;
      if (event.key === "r") location.href = $("[href='/repositories/']").href;
      if (event.key === "d" && $("[href='/dashboard/']")) location.href = $("[href='/dashboard/']").href;
      return;
    }
    if (event.key === "g") { goes = true; setTimeout(() => { goes = false; }, 1200); return; }
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  // --- begin
  $("[data-theme-toggle]").hidden = false;
  setTheme(root.dataset.theme || "");
  if (composer() && !question().value) {
    question().value = store.get(draftKey()) || "";
    grow();
  }
  start();
  $$("[data-newest]").forEach((box) => { box.scrollLeft = box.scrollWidth; });
  if (thread() && body.dataset.conversation && !location.hash) showLastQuestion(); // a shared one is read from its start
  paneReady();
})();
