// Browsers refuse workers for pages that are opened as files. This runs a worker's script in a hidden frame instead, so
// that the search of the site works without a server.
if (location.protocol === "file:") {
  // As between threads, messages are copies and arrive later.
  const deliver = (target, data) => {
    const event = new MessageEvent("message", { data: structuredClone(data) });
    setTimeout(() => target.dispatchEvent(event));
  };

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.addEventListener("message", (event) => this.onmessage?.(event));
      this.addEventListener("error", (event) => this.onerror?.(event));
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => deliver(this, data);
      const script = this.inside.document.createElement("script");
      this.loaded = new Promise((resolve) => (script.onload = resolve));
      script.onerror = () => this.dispatchEvent(new Event("error", { cancelable: true }));
      script.src = new URL(url, location.href).href;
      this.inside.document.documentElement.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => deliver(this.inside, data));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
