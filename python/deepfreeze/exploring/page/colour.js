// A perceptual colour map (viridis, by Smith and van der Walt, CC0), light to read on both grounds.

const STOPS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129],
  [92, 200, 99], [170, 220, 50], [253, 231, 37],
];

const TABLE = new Uint32Array(256).map((_, place) => packed(between(place / 255)));

function between(part) {
  const place = part * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, i) => Math.round(value + (STOPS[low + 1][i] - value) * (place - low)));
}

// As ImageData has it, little-endian.
export function packed([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export function packedHex(hex) {
  return packed([1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
}

export function colourAt(part) {
  return TABLE[Math.max(0, Math.min(255, Math.round(part * 255)))];
}

export function cssAt(part) {
  return `rgb(${between(Math.max(0, Math.min(1, part))).join(" ")})`;
}

// The place of a value between the least and the greatest: 0 to 1. `least` > 0 if it is logarithmic.
export function placeIn(value, range) {
  if (range.most <= range.least) return 0.5;
  if (!range.log) return (value - range.least) / (range.most - range.least);
  if (value <= range.least) return 0;
  return Math.log(value / range.least) / Math.log(range.most / range.least);
}

const SAMPLES_MAX = 20000;

// The range of finite values, without the outermost of them: `outside` is their share on each side.
export function rangeOf(values, log, outside = 0) {
  const stride = Math.max(1, Math.floor(values.length / SAMPLES_MAX));
  const known = [];
  for (let place = 0; place < values.length; place += outside ? stride : 1) {
    const value = values[place];
    if (Number.isFinite(value) && (!log || value > 0)) known.push(value);
  }
  if (!known.length) return { least: log ? 1 : 0, most: 1, log };
  known.sort((one, other) => one - other);
  const cut = Math.floor(known.length * outside);
  return { least: known[cut], most: known[known.length - 1 - cut], log };
}
