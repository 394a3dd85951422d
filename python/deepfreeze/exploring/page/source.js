// The source of the data: the server that gave this page, or the page's own file.

export async function openSource() {
  const own = document.getElementById("data");
  return own ? new FileSource(JSON.parse(own.textContent)) : new LiveSource();
}

class LiveSource {
  live = true;

  async json(...words) {
    const response = await this.#get(words);
    return response.json();
  }

  async floats(...words) {
    const response = await this.#get(words);
    return new Float32Array(await response.arrayBuffer());
  }

  async tensor(run, place) {
    return this.json("tensor", run, place);
  }

  async #get(words) {
    const address = `api/${words.map(encodeURIComponent).join("/")}`;
    let response;
    try {
      response = await fetch(address, { credentials: "same-origin" });
    } catch {
      throw new Error("`deepfreeze explore` no longer runs: start it again.");
    }
    if (response.ok) return response;
    const text = await response.text();
    let message = text;
    try {
      message = JSON.parse(text).error.message;
    } catch {
      // it is plain text
    }
    throw new Error(message);
  }
}

const QUANTITY_NAMES = [
  "min", "max", "mean", "deviation", "norm", "zeros", "non_finite", "delta", "cosine", "changed",
];

class FileSource {
  live = false;
  #data;
  #unpacked = new Map();

  constructor(data) {
    this.#data = data;
  }

  async json(...words) {
    if (words[0] === "progress") return { computing: false, runs: {} };
    const found = this.#data[words.join("/")];
    if (found !== undefined) return found;
    throw new Error(
      words[0] === "compare"
        ? "This file has not compared these two steps. `deepfreeze explore` without --html can."
        : "This file has no such data.",
    );
  }

  async floats(...words) {
    return new Float32Array(await this.#bytes(words.join("/"), await this.json(...words)));
  }

  // The series come out of the matrices; histograms of some steps are packed for all tensors.
  async tensor(run, place) {
    const { columns, tensors } = await this.json("tensors", run);
    const series = {};
    for (const name of QUANTITY_NAMES) {
      const matrix = await this.floats("matrix", run, name);
      series[name] = [...matrix.subarray(place * columns.length, (place + 1) * columns.length)];
    }
    const histograms = columns.map(() => null);
    const packed = this.#data[`histograms/${run}`];
    if (packed) {
      const bytes = new Uint8Array(await this.#bytes(`histograms/${run}`, packed.data));
      const bins = bytes.length / Math.max(1, tensors.length * packed.columns.length);
      packed.columns.forEach((column, i) => {
        const begin = (place * packed.columns.length + i) * bins;
        histograms[column] = [...bytes.subarray(begin, begin + bins)];
      });
    }
    return { key: tensors[place].key, series, histograms };
  }

  async #bytes(name, text) {
    if (!this.#unpacked.has(name)) this.#unpacked.set(name, await inflated(text));
    return this.#unpacked.get(name);
  }
}

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}
