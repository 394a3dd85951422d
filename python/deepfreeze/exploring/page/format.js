// Numbers, sizes and times as people read them.

// JSON has no NaN: null stands for "not known", "nan", "inf" and "-inf" for these values.
export function asNumber(value) {
  if (typeof value === "number") return value;
  if (value === "inf") return Infinity;
  if (value === "-inf") return -Infinity;
  return NaN;
}

export function num(value, digits = 3) {
  const x = typeof value === "number" ? value : asNumber(value);
  if (value === "nan") return "NaN";
  if (Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e7) return String(x).replace("-", "−");
  const text = size >= 1e5 || size < 1e-3 ? x.toExponential(digits - 1) : x.toPrecision(digits);
  return text.replace(/e\+?(-?)(\d+)$/, "e$1$2").replaceAll("-", "−");
}

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  return `${share > 0 && share < 0.001 ? "<0.1" : (share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

export function size(count) {
  let value = count;
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 1000) return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    value /= 1000;
  }
  return `${Math.round(value)} PB`;
}

export function utc(micros) {
  if (!micros) return "–";
  return `${new Date(micros / 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

// A name of thousands of characters, by its ends.
export function shortName(text) {
  return text.length <= 160 ? text : `${text.slice(0, 90)} … ${text.slice(-60)}`;
}

// The end of a long name says most.
export function tail(text, most) {
  return text.length <= most ? text : `…${text.slice(text.length - most + 1)}`;
}
