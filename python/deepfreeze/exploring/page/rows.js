// The rows of the heat map: tensors, folded into the modules that they belong to.

// The quantities that a row can show. `needs` are matrices; `value` gets their sums over the row's tensors.
export const SHOWN = {
  change: { name: "change ‖Δ‖ / ‖w‖", about: "size of the change since the save before, relative to the norm", log: true },
  norm: { name: "norm ‖w‖", about: "square root of the sum of squares", log: true },
  largest: { name: "largest |w|", about: "greatest finite size of an element", log: true },
  spread: { name: "standard deviation", about: "of the finite elements; of a module: of its tensors on average", log: true },
  changed: { name: "elements changed", about: "share whose bits differ from the save before", share: true },
  zeros: { name: "zeros", about: "share of elements that are zero", share: true },
  non_finite: { name: "NaN and infinities", about: "count of elements", log: true, count: true },
};

const NEEDS = {
  change: ["delta", "norm"], norm: ["norm"], largest: ["min", "max"], spread: ["deviation"],
  changed: ["changed"], zeros: ["zeros"], non_finite: ["non_finite"],
};

export function needsOf(shown) {
  return [...new Set([...NEEDS[shown], "non_finite"])];
}

// A tree of names. A module with a single child is joined with it.
export function treeOf(tensors, places) {
  const root = { name: "", path: "", depth: 0, children: new Map(), tensors: [] };
  for (const place of places) {
    let node = root;
    const parts = tensors[place].key.split(".");
    parts.forEach((part, i) => {
      const isLeaf = i === parts.length - 1;
      const name = isLeaf ? `${part}\u0000` : part; // a tensor and a module may share a name
      if (!node.children.has(name)) {
        node.children.set(name, { name: part, path: parts.slice(0, i + 1).join("."), children: new Map(), tensors: [], isLeaf });
      }
      node = node.children.get(name);
      node.tensors.push(place);
    });
    root.tensors.push(place);
  }
  joinSingles(root);
  setDepths(root, 0);
  return root;
}

function joinSingles(node) {
  for (const [name, child] of node.children) {
    let here = child;
    while (!here.isLeaf && here.children.size === 1) {
      const [only] = here.children.values();
      only.name = `${here.name}.${only.name}`;
      here = only;
    }
    node.children.set(name, here);
    joinSingles(here);
  }
}

function setDepths(node, depth) {
  node.depth = depth;
  for (const child of node.children.values()) setDepths(child, depth + 1);
}

export function depthOf(root) {
  let most = 0;
  const visit = (node) => {
    most = Math.max(most, node.depth);
    for (const child of node.children.values()) visit(child);
  };
  visit(root);
  return most;
}

// The rows that are seen: nodes above `depth` are open, but those in `turned` the other way round.
export function visibleRows(root, depth, turned) {
  const rows = [];
  const visit = (node) => {
    for (const child of node.children.values()) {
      const isOpen = !child.isLeaf && (child.depth < depth) !== turned.has(child.path);
      rows.push({ node: child, isOpen });
      if (isOpen) visit(child);
    }
  };
  visit(root);
  return rows;
}

// The depth at which at most so many rows are seen.
export function fittingDepth(root, most) {
  const deepest = depthOf(root);
  for (let depth = deepest; depth > 1; depth -= 1) {
    if (visibleRows(root, depth, new Set()).length <= most) return depth;
  }
  return 1;
}

// Values of one row, a column for each step, from the matrices that needsOf() names.
export function rowValues(shown, node, matrices, columns, tensors) {
  const values = new Float64Array(columns).fill(NaN);
  const sums = new Float64Array(columns);
  const weights = new Float64Array(columns);
  const add = ADDERS[shown];
  for (const place of node.tensors) add(matrices, place, columns, sums, weights, tensors[place].elements);
  for (let column = 0; column < columns; column += 1) {
    if (Number.isNaN(weights[column]) || weights[column] === 0) continue;
    values[column] = RESULTS[shown](sums[column], weights[column]);
  }
  return values;
}

function each(columns, place, add) {
  for (let column = 0, at = place * columns; column < columns; column += 1, at += 1) add(column, at);
}

function squares(of) {
  return (matrices, place, columns, sums, weights) => each(columns, place, (column, at) => {
    const value = matrices[of][at];
    if (Number.isNaN(value)) return;
    sums[column] += value * value;
    weights[column] = 1;
  });
}

function counts(of) {
  return (matrices, place, columns, sums, weights, elements) => each(columns, place, (column, at) => {
    const value = matrices[of][at];
    if (Number.isNaN(value)) return;
    sums[column] += value;
    weights[column] += Math.max(1, elements);
  });
}

const ADDERS = {
  norm: squares("norm"),
  change: (matrices, place, columns, sums, weights) => each(columns, place, (column, at) => {
    const [delta, norm] = [matrices.delta[at], matrices.norm[at]];
    if (Number.isNaN(delta) || Number.isNaN(norm)) return;
    sums[column] += delta * delta;
    weights[column] += norm * norm;
  }),
  largest: (matrices, place, columns, sums, weights) => each(columns, place, (column, at) => {
    const value = Math.max(Math.abs(matrices.min[at]), Math.abs(matrices.max[at]));
    if (Number.isNaN(value)) return;
    sums[column] = Math.max(sums[column], value);
    weights[column] = 1;
  }),
  spread: (matrices, place, columns, sums, weights, elements) => each(columns, place, (column, at) => {
    const value = matrices.deviation[at];
    if (Number.isNaN(value)) return;
    sums[column] += value * value * elements;
    weights[column] += elements;
  }),
  changed: counts("changed"),
  zeros: counts("zeros"),
  non_finite: counts("non_finite"),
};

const share = (sum, weight) => sum / weight;
const RESULTS = {
  norm: (sum) => Math.sqrt(sum),
  change: (sum, weight) => Math.sqrt(sum / weight),
  largest: (sum) => sum,
  spread: (sum, weight) => Math.sqrt(sum / weight),
  changed: share,
  zeros: share,
  non_finite: (sum) => sum,
};
