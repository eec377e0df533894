/**
 * The audit of the apps behind the gate, as a button starts it: the program is the product's own. So is the fault that
 * another button plants in the demo's proxy. One thing runs at a time.
 *
 * Not here: how it is shown (`audit_page.js`).
 */
import { execFile } from 'node:child_process';

const MOST_OUTPUT = 4 * 1024 * 1024;

export class Audit {
  /** `apps`: {"portal", "board"}, addresses; {"audit", "plant", "mend"}, commands. */
  constructor(apps) {
    this.apps = apps;
    this.running = ''; // which of the three
    this.results = undefined; // of the last audit
    this.made = undefined; // when
    this.hadFault = false; // while that one ran
    this.hasFault = false;
    this.problem = ''; // of the last thing that was started
  }

  start(action) {
    if (this.running || !['audit', 'plant', 'mend'].includes(action)) return;
    this.running = action;
    this.problem = '';
    const [program, ...words] = this.apps[action];
    execFile(program, words, { maxBuffer: MOST_OUTPUT }, (error, output, errors) => {
      this.running = '';
      if (action === 'audit') this.#take(output, errors);
      else if (error) this.problem = errors.trim() || error.message;
      else this.hasFault = action === 'plant';
    });
  }

  /** The program ends with 1 where something is open: what it printed says whether it worked. */
  #take(output, errors) {
    try {
      this.results = JSON.parse(output);
      this.hadFault = this.hasFault;
      this.made = new Date();
    } catch {
      this.problem = `The audit could not be made. ${errors.trim().split('\n').at(-1)}`;
    }
  }
}
