// Elements of the page: made and changed without ever reading text as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** A new HTML element; children may be strings, which stay text. */
export function element(name, attributes = {}, ...children) {
  return furnish(document.createElement(name), attributes, children);
}

/** A new SVG element. */
export function drawn(name, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, name), attributes, children);
}

/** Set attributes; null or false takes one away. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return node;
}

/** Write text, if it is another than before: what reads the page aloud is not told twice. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Call `draw(width)` with the width of a node in pixels, now and whenever it changes. */
export function onWidth(node, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (node.clientWidth && node.clientWidth !== width) {
      width = node.clientWidth;
      draw(width);
    }
  }).observe(node);
}

function furnish(node, attributes, children) {
  set(node, attributes);
  node.append(...children);
  return node;
}
