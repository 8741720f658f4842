// What a page shows is read anew while the page is seen: a value, how old it is, and why it is not newer.

import { untrack } from "svelte";
import { ApiError, call } from "./api";

/** Of the whole page: who calls, whether the manager answers, and the time that ages are told by. */
export const app = $state({ signedOut: false, lost: "", now: Date.now() });

/** Notes that the manager answers. */
export function heard(): void {
  if (app.lost) app.lost = "";
}

function note(err: unknown): string {
  if (err instanceof ApiError) {
    if (err.code === "unauthenticated") app.signedOut = true;
    else if (err.code === "unavailable") app.lost = err.message;
    return err.message;
  }
  app.lost = "the manager does not answer";
  return app.lost;
}

/** Why a stream failed. One ends as unauthenticated also when what its caller may do has changed: then there is nothing to say. */
async function asStream(err: unknown): Promise<unknown> {
  if (!(err instanceof ApiError) || err.code !== "unauthenticated") return err;
  try {
    await call("TrustService/WhoAmI", {});
    return undefined;
  } catch (refused) {
    return refused;
  }
}

export class Live<T> {
  value = $state.raw<T>();
  error = $state("");
  /** Reads at once, while it polls. */
  again: () => void = () => {};
  private due = 0; // timer of a read that was asked for
  private last = 0; // when it was read
  /** What is shown has changed: reads within a second, and not twice within two, however often it is called. */
  soon = (): void => {
    this.due ||= window.setTimeout(() => {
      this.due = 0;
      this.again();
    }, Math.max(1000, this.last + 2000 - Date.now()));
  };

  /** Reads every so many seconds, from an $effect: what it returns ends it. */
  poll(seconds: number, read: (signal: AbortSignal) => Promise<T>): () => void {
    const ended = new AbortController();
    let timer = 0;
    let busy = false;
    let missed = false; // it was to read while it did
    const again = async () => {
      missed = busy;
      if (busy) return;
      busy = true;
      let wait = seconds;
      // The first time whether it is seen or not: a page may be shown without a word. The effect that polls does not
      // depend on the value: it would begin anew with each answer.
      if (!document.hidden || untrack(() => this.value) === undefined) {
        try {
          this.last = Date.now();
          const value = await read(ended.signal);
          if (ended.signal.aborted) return;
          this.value = value;
          if (missed) wait = Math.min(wait, 1);
          this.error = app.lost = "";
        } catch (err) {
          if (ended.signal.aborted) return;
          this.error = note(err);
          wait = Math.min(seconds, 2);
        }
      }
      busy = false;
      if (!app.signedOut) timer = window.setTimeout(again, wait * 1000);
    };
    const seen = () => {
      if (document.hidden) return;
      clearTimeout(timer);
      void again();
    };
    document.addEventListener("visibilitychange", seen);
    this.again = seen;
    void again();
    return () => {
      this.again = () => {};
      ended.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }
}

/** Keeps a stream open while the page is seen, from an $effect: open is called again, a little later each time, when it fails. A
 * browser has few streams to one manager, so those of pages that nobody sees are closed. */
export function follow(open: (signal: AbortSignal) => Promise<void>, failed: (why: string) => void): () => void {
  const ended = new AbortController();
  let current = new AbortController();
  let seen = () => {};
  const look = () => {
    if (document.hidden) current.abort();
    else seen();
  };
  document.addEventListener("visibilitychange", look);
  void (async () => {
    for (let wait = 500; !ended.signal.aborted; wait = Math.min(wait * 2, 4000)) {
      if (document.hidden) await new Promise<void>((done) => (seen = done));
      if (ended.signal.aborted) return;
      current = new AbortController();
      const began = Date.now();
      try {
        await open(AbortSignal.any([ended.signal, current.signal]));
      } catch (err) {
        if (ended.signal.aborted) return;
        if (current.signal.aborted) continue; // nobody saw the page
        const why = await asStream(err);
        if (ended.signal.aborted) return;
        if (why) failed(note(why));
        if (app.signedOut) return;
        if (err instanceof ApiError && err.code === "permission_denied") return;
      }
      if (Date.now() - began > 10000) wait = 500;
      await new Promise((done) => setTimeout(done, wait));
    }
  })();
  return () => {
    document.removeEventListener("visibilitychange", look);
    ended.abort();
    seen();
  };
}
