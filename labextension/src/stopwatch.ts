/**
 * Time that has passed, also while a laptop slept or its clock was set.
 */

/** Time since then. Of two clocks the one that went further: one stands while a laptop sleeps, one can be set back. */
export class Stopwatch {
  restart(): void {
    this._wall = Date.now();
    this._steady = performance.now();
  }

  elapsed(): number {
    return Math.max(Date.now() - this._wall, performance.now() - this._steady, 0);
  }

  private _wall = Date.now();
  private _steady = performance.now();
}
