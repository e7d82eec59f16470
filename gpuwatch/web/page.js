"use strict";
(() => {
  // Brings the page up to date in place: what has not changed is not touched, so that scroll position, focus and selection stay.
  const every = 5000, patience = 10000;
  let seen = new Date(), asking = false;

  const selected = (node) => {
    const selection = getSelection();
    return selection.rangeCount > 0 && !selection.isCollapsed && selection.containsNode(node, true);
  };

  const attributes = (old, fresh) => {
    for (const {name} of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const {name, value} of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  };

  const same = (one, other) => one.nodeName === other.nodeName && (one.id || "") === (other.id || "");

  // What somebody is just selecting waits until it is let go.
  const remove = (node) => { if (!selected(node)) node.remove(); };

  const merge = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType === Node.ELEMENT_NODE) {
      attributes(old, fresh);
      children(old, fresh);
    } else if (!selected(old)) {
      old.data = fresh.data;
    }
  };

  const children = (old, fresh) => {
    let next = old.firstChild;
    for (const wanted of fresh.childNodes) {
      let found = next;
      while (found && !same(found, wanted)) found = found.nextSibling;
      if (!found) {
        old.insertBefore(document.importNode(wanted, true), next);
        continue;
      }
      while (next !== found) {
        const gone = next;
        next = next.nextSibling;
        remove(gone);
      }
      next = found.nextSibling;
      merge(found, wanted);
    }
    while (next) {
      const gone = next;
      next = next.nextSibling;
      remove(gone);
    }
  };

  const style = (page) => page.querySelector("style").textContent;

  const tell = (why) => {
    const note = document.querySelector(".stale");
    note.textContent = `Not up to date: ${why}. This is how it was at ${seen.toLocaleTimeString()}.`;
    note.hidden = false;
  };

  const show = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    if (!fresh.querySelector("main") || !fresh.querySelector(".stale")) return tell("another program answers now");
    if (style(fresh) !== style(document)) return location.reload();
    document.title = fresh.title;
    merge(document.body, fresh.body);
    seen = new Date();
  };

  const refresh = async () => {
    if (document.hidden || asking) return;
    asking = true;
    try {
      // Without the user name and password that the address may hold: fetch refuses those.
      const answer = await fetch(location.origin + location.pathname, {cache: "no-store", signal: AbortSignal.timeout(patience)});
      if (answer.ok) show(await answer.text());
      else tell(`gpuwatch answers with ${answer.status}`);
    } catch {
      tell("gpuwatch does not answer");
    } finally {
      asking = false;
    }
  };

  setInterval(refresh, every);
  document.addEventListener("visibilitychange", refresh);
})();
