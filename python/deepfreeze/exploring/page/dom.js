// Makes elements. Text goes in as text only: names of runs and tensors may hold any markup.

export function el(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

// Draws with the width that the host has, now and whenever it changes; not within the observer,
// since the drawing may change the host's size again.
export function responsive(host, draw) {
  let last = 0;
  new ResizeObserver((entries) => {
    const width = Math.floor(entries[0].contentRect.width);
    if (width > 0 && width !== last) requestAnimationFrame(() => draw((last = width)));
  }).observe(host);
  return host;
}

export function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function choice(label, options, value, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) });
  for (const [key, text] of options) select.append(el("option", { value: key }, text));
  select.value = value;
  return el("label", {}, label, select);
}

export function tick(label, checked, onchange) {
  const input = el("input", { type: "checkbox", checked, onchange: () => onchange(input.checked) });
  return el("label", { class: "line" }, input, label);
}

export function tile(number, text) {
  return el("div", { class: "tile" }, el("b", {}, number), el("span", {}, text));
}

export function badge(text, look = "") {
  return el("span", { class: `badge ${look}` }, text);
}
