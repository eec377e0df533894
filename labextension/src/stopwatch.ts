/**
 * Measures elapsed time, also across a laptop's sleep or a change of its clock.
 */

/** Elapsed time by the clock that went further: one stops while a laptop sleeps, the other can be set back. */
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
