// A page that is opened from a disk may start no worker, and the search needs one: this runs the
// worker's script in a hidden frame. Its name is the one that the theme's worker looks for.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.waiting = [];
      this.frame.ready = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      const inner = this.frame.contentWindow.document;
      inner.open();
      inner.write(
        "<script>postMessage = (data) => frameElement.answer(data)</script>" +
          `<script src="${url}" onload="frameElement.ready()"></script>`
      );
      inner.close();
    }

    postMessage(data) {
      if (this.waiting) return void this.waiting.push(data);
      const inner = this.frame.contentWindow;
      inner.dispatchEvent(new inner.MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
