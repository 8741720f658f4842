// Pages by the part of the address behind #: #/vips/shop?mux=mux1. It is never sent to a manager.

function parse() {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", ...rest] = path.split("/");
  return { page: page || "overview", name: safeDecode(rest.join("/")), query: new URLSearchParams(query) };
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

class Route {
  current = $state.raw(parse());
  constructor() {
    addEventListener("hashchange", () => {
      this.current = parse();
      scrollTo(0, 0);
    });
  }
}

export const route = new Route();

export const link = (page: string, name = "") => `#/${page}${name ? "/" + encodeURIComponent(name) : ""}`;
