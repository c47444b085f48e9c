/* A plan takes the place of the one before it, its choices are estimated as they are made, texts are copied, files
   fill their fields. Without it links and forms load whole pages. fixi asks; here stands what is done. */
(() => {
  const main = document.querySelector("main");
  const status = document.createElement("p");
  status.setAttribute("role", "status");
  document.body.append(status);
  const address = () => location.pathname + location.search;
  const choicesTop = () => document.querySelector("#what-if")?.getBoundingClientRect().top;
  const read = (text) => new DOMParser().parseFromString(text, "text/html");
  let shown = address(), asked, rests, estimated;
  const REST_MS = 900;

  document.addEventListener("fx:config", (event) => {
    const { cfg } = event.detail, element = event.target;
    if (["ctrlKey", "metaKey", "shiftKey", "altKey"].some((key) => cfg.trigger[key])) {
      cfg.preventTrigger = false;
      event.preventDefault();
      return;
    }
    still();
    const form = element.matches("form") ? element : null;
    Object.assign(cfg, { drop: 0, target: main, swap: show, transition: null });
    cfg.action = element.getAttribute(form ? "action" : "href");
    cfg.method = form ? form.getAttribute("method").toUpperCase() : "GET";
    cfg.body = new URLSearchParams(cfg.body);
    asked = cfg;
    (form?.querySelector("[type=submit]") ?? element).classList.add("asked");
    main.setAttribute("aria-busy", "true");
    say("Planning");
  });
  document.addEventListener("fx:after", (event) => {
    if (event.detail.cfg !== asked) event.preventDefault();
  });
  document.addEventListener("fx:error", (event) => {
    const { cfg } = event.detail;
    if (cfg !== asked) return;
    done();
    if (event.target.matches("form")) event.target.submit();
    else location.assign(cfg.action);
  });
  addEventListener("input", (event) => {
    const form = event.target.closest(".what-if");
    if (form) estimate(form);
  });
  addEventListener("popstate", () => {
    if (address() !== shown) location.reload();
  });
  addEventListener("click", (event) => {
    const clicked = event.target.closest("a, button");
    // The second click of a double one may meet another page.
    if (clicked && event.detail > 1) {
      event.preventDefault();
      event.stopImmediatePropagation();
    } else if (clicked?.hash && clicked.pathname === location.pathname) reveal(clicked.hash);
  }, true);
  addEventListener("beforeprint", () => parts().forEach((part) => { part.open = true; }));

  function show(cfg) {
    const page = read(cfg.text);
    const fresh = page.querySelector("main");
    if (!fresh) {
      location.assign(cfg.response.url);
      return;
    }
    if (cfg.body && showWrong(fresh)) return done();
    const place = choicesTop();
    const chosen = document.activeElement?.closest(".what-if") ? document.activeElement.id : "";
    const were = new Map(folds().map(([name, fold]) => [name, fold.open]));
    const before = location.pathname;
    main.replaceChildren(...fresh.childNodes);
    const { pathname, search } = new URL(cfg.response.url);
    // Who goes back to the form finds it as it was sent.
    if (before === "/" && pathname !== before) history.replaceState(null, "", before + search);
    history.pushState(null, "", pathname + search);
    shown = address();
    document.title = page.title;
    done();
    add();
    if (before === pathname) folds().forEach(([name, fold]) => { fold.open = were.get(name) ?? fold.open; });
    focus(before === location.pathname ? place : undefined, document.getElementById(chosen));
  }

  /* One estimate of a form at a time, then of its newest choices; a search when the hand rests. */
  async function estimate(form) {
    still();
    rests = setTimeout(() => form.requestSubmit(), REST_MS);
    if (estimated === form) return;
    estimated = form;
    const query = () => String(new URLSearchParams(new FormData(form)));
    for (let said = ""; form.isConnected && said !== query();) {
      said = query();
      // What has neither is left to the search.
      const text = await fetch(`/estimate?${said}`).then((answer) => answer.status < 429 && answer.text()).catch(() => "");
      if (text && form.isConnected && !showWrong(read(text))) showEstimate(text);
    }
    if (estimated === form) estimated = null;
  }

  function still() {
    asked?.abort();
    clearTimeout(rests);
    done();
  }

  /* Choices that cannot be together stay, beneath why. */
  function showWrong(page) {
    const wrong = page.querySelector(".alert"), box = main.querySelector("#answer");
    if (!wrong || !box) return;
    box.querySelector(".alert")?.remove();
    showEstimate(box.outerHTML.replace(">", () => `>${wrong.outerHTML}`));
    return true;
  }

  function showEstimate(text) {
    const place = choicesTop();
    const box = main.querySelector("#answer");
    box.outerHTML = text;
    scrollBy({ top: choicesTop() - place, behavior: "instant" });
    const fresh = main.querySelector("#answer");
    const figures = [...fresh.querySelectorAll(".amount, h1")].map((each) => each.innerText).join(" \u00b7 ");
    main.querySelector(".contents .short").textContent = figures;
    say(figures, fresh.getBoundingClientRect().bottom <= 0);
  }

  function focus(place, chosen) {
    if (chosen) chosen.focus({ preventScroll: true });
    else focusTitle();
    const now = choicesTop();
    const isPlan = place !== undefined && now !== undefined;
    scrollBy({ top: isPlan ? now - place : -scrollY, behavior: "instant" });
    const box = main.querySelector(".versus");
    const change = [...main.querySelectorAll(".versus p:not(.note)")].map((line) => line.innerText);
    say([main.querySelector("h1").innerText, ...change].join(" \u00b7 "), isPlan && box?.getBoundingClientRect().bottom <= 0);
  }

  function focusTitle() {
    const title = main.querySelector("h1");
    title.tabIndex = -1;
    title.focus({ preventScroll: true });
    return title;
  }

  function folds() {
    const name = (fold) => `${fold.closest("section")?.getAttribute("aria-labelledby")} ${fold.className}`;
    return [...main.querySelectorAll("details")].map((fold) => [name(fold), fold]);
  }

  function parts() {
    return [...main.querySelectorAll(".part")];
  }

  function reveal(hash) {
    const part = hash && document.getElementById(hash.slice(1))?.closest("details");
    if (part) part.open = true;
  }

  function done() {
    asked = null;
    main.removeAttribute("aria-busy");
    main.querySelectorAll(".asked").forEach((each) => each.classList.remove("asked"));
  }

  function say(text, isSeen) {
    status.className = isSeen ? "status" : "hidden";
    const said = document.createElement("span");
    said.textContent = text;
    status.replaceChildren(said);
  }

  function add() {
    // A small screen begins with the answer and the choices.
    if (matchMedia("(max-width: 44rem)").matches) parts().forEach((part) => { part.open = false; });
    main.querySelectorAll("textarea").forEach(addFile);
    if (!navigator.clipboard) return;
    main.querySelectorAll("pre > code").forEach((code) => {
      code.parentElement.before(copier("Copy", () => code.textContent));
    });
    main.querySelectorAll("a[rel=bookmark]").forEach((link) => {
      link.after(copier("Copy the link", () => link.href));
    });
  }

  function copier(text, content) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: text });
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(content());
        say("Copied", true);
      } catch {
        say("The browser does not let it be copied: select the text instead", true);
      }
    });
    return button;
  }

  function addFile(area) {
    const ariaLabel = `${area.ariaLabel ?? area.labels[0].textContent}: a file`;
    const file = Object.assign(document.createElement("input"), { type: "file", className: "file", ariaLabel });
    file.addEventListener("change", async () => {
      const [chosen] = file.files;
      if (!chosen) return;
      if (chosen.size > 2 ** 20) say(`${chosen.name} is larger than 1 MiB`, true);
      else area.value = await chosen.text();
    });
    area.before(file);
  }

  add();
  reveal(location.hash);
  const [loaded] = performance.getEntriesByType("navigation");
  if (["reload", "back_forward"].includes(loaded?.type) && !location.hash) focusTitle();
})();
