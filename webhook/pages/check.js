"use strict";
// Search and filter findings, and keep the query in the address. Without scripts, the page shows all except the form.
(() => {
  const form = document.querySelector("form");
  if (!form) return;
  const names = ["q", "outcome", "policy", "namespace", "team"];
  const textOf = (element) => element.textContent.toLowerCase();
  const groups = [...document.querySelectorAll(".group")].map((element) => ({
    element,
    outcome: element.dataset.outcome || "",
    policy: element.dataset.policy || "",
    variants: (element.matches(".variant") ? [element] : [...element.querySelectorAll(".variant")]).map((variant) => ({
      element: variant,
      places: [...variant.querySelectorAll(".places > li")].map((place) => ({ element: place, ...place.dataset })),
    })),
  }));
  const parts = [...document.querySelectorAll(".part")];
  const numberOf = (group) => group.variants.reduce((sum, variant) => sum + variant.places.length, 0);
  const total = groups.reduce((sum, group) => sum + (group.outcome ? numberOf(group) : 0), 0);

  // A group's text applies to all its places, and a variant's text to the variant's places.
  const readTexts = () => {
    for (const group of groups) {
      const own = group.element.querySelectorAll(":scope > summary, :scope > .ruled > .text");
      group.text = [group.policy.toLowerCase(), ...[...own].map(textOf)].join("\n");
      for (const variant of group.variants) {
        variant.text = [...variant.element.querySelectorAll("pre, .text")].map(textOf).join("\n");
        for (const place of variant.places) place.text = textOf(place.element);
      }
    }
  };

  const show = () => {
    const query = Object.fromEntries(names.map((name) => [name, form.elements[name].value]));
    const words = query.q.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length && groups.length && groups[0].text === undefined) readTexts();
    let found = 0;
    for (const group of groups) {
      const fits = ["outcome", "policy"].every((name) => !query[name] || query[name] === group[name]);
      let seen = 0;
      for (const variant of group.variants) {
        const rest = words.filter((word) => !group.text.includes(word) && !variant.text.includes(word));
        let shown = 0;
        for (const place of variant.places) {
          const visible =
            fits &&
            ["namespace", "team"].every((name) => !query[name] || query[name] === place[name]) &&
            rest.every((word) => place.text.includes(word));
          place.element.hidden = !visible;
          shown += visible;
        }
        variant.element.hidden = !shown;
        seen += shown;
      }
      group.element.hidden = !seen;
      const count = group.element.querySelector(".count");
      if (count) count.textContent = seen === numberOf(group) ? seen : `${seen} of ${numberOf(group)}`;
      if (group.outcome) found += seen;
    }
    for (const part of parts) part.hidden = !part.querySelector(".group:not([hidden])");
    form.querySelector("output").textContent =
      found === total ? `all ${total} findings` : `${found} of ${total} findings`;
  };

  const fromAddress = () => {
    const query = new URLSearchParams(location.hash.slice(1));
    for (const name of names) form.elements[name].value = query.get(name) || "";
    show();
  };

  const toAddress = () => {
    const query = names.map((name) => [name, form.elements[name].value]).filter(([, value]) => value);
    history.replaceState(null, "", `#${new URLSearchParams(query)}`);
    show();
  };

  for (const element of document.querySelectorAll("[data-link]")) {
    const link = document.createElement("a");
    link.href = `#${element.dataset.link}`;
    link.append(...element.childNodes);
    element.append(link);
  }
  form.addEventListener("input", toAddress);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(toAddress));
  form.elements.open.addEventListener("click", (event) => {
    const closed = event.target.textContent === "Open all";
    for (const details of document.querySelectorAll("details.group:not([hidden])")) details.open = closed;
    event.target.textContent = closed ? "Close all" : "Open all";
  });
  addEventListener("hashchange", fromAddress);
  form.hidden = false;
  fromAddress();
})();
