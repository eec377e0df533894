/**
 * The training runs of this server: how far each is, how long it still takes, and whether the server lives that long.
 */
import * as React from 'react';

import { Meter } from './meter';
import type { Snapshot, Training } from './messages';
import type { IGpuModel } from './model';
import type { IShown } from './seen';
import { canExtend, extendLabel, type ILate, keepsInstead, overText } from './training-end';
import {
  donePercent,
  headText,
  isRunning,
  leftText,
  likelyText,
  lineText,
  NOTICE_MS,
  paceText,
  secondsLeft,
  silentText,
  sorted,
  stepsText,
  usualText
} from './training-text';
import { percent } from './units';
import { More } from './words';

interface ITrainings extends IShown {
  model: IGpuModel;
  snapshot: Snapshot;
  late: ILate | null;
}

export function Trainings(props: ITrainings): JSX.Element | null {
  const { snapshot, late, model, trans, now } = props;
  const [first, ...others] = sorted(snapshot.trainings ?? [], now);
  const server = snapshot.service_note ? null : snapshot.server;
  if (!first && !late) {
    return null;
  }
  return (
    <>
      <h3>{trans.__('Training')}</h3>
      {first ? <First {...props} training={first} /> : null}
      {late && server ? (
        <>
          <p className="jp-gpu-Warning">{late.text}</p>
          {canExtend(server) ? (
            <p className="jp-gpu-Keep">
              <More
                label={extendLabel(server, trans)}
                keeping={model.keeping}
                ask={() => void model.extend()}
              />
            </p>
          ) : keepsInstead(server) ? null : (
            <p>{trans.__('Save checkpoints. Whoever runs this hub may give it more time.')}</p>
          )}
        </>
      ) : null}
      {others.length > 0 ? (
        <ul>
          {others.map(one => (
            <li key={one.run}>{lineText(one, now, trans)}</li>
          ))}
        </ul>
      ) : null}
    </>
  );
}

function First({
  training,
  snapshot,
  model,
  trans,
  now
}: ITrainings & { training: Training }): JSX.Element {
  const head = headText(training, trans);
  if (!isRunning(training)) {
    return (
      <>
        {head === '' ? null : <p className="jp-gpu-Label">{head}</p>}
        <p>{overText(training, snapshot, now, trans)}</p>
      </>
    );
  }
  const done = donePercent(training);
  const silent = silentText(training, now, trans);
  const left = silent === '' ? leftText(training, now, trans) : '';
  const steps = stepsText(training, trans);
  const details = [
    left === '' ? '' : likelyText(training, now, trans),
    left === '' && done === null ? '' : steps,
    paceText(training, trans),
    usualText(training, trans)
  ];
  const whole =
    now - Date.parse(training.started) + 1000 * (secondsLeft(training, now) ?? Infinity);
  return (
    <>
      <div className="jp-gpu-Row">
        <span className="jp-gpu-Label">{head}</span>
        <span>{done === null ? '' : percent(done, trans)}</span>
      </div>
      <Meter
        role="progressbar"
        label={`${trans.__('Training')} ${training.name}`}
        text={percent(done, trans)}
        percent={done}
      />
      {silent === '' ? (
        <p className="jp-gpu-Large">{left === '' ? steps : left}</p>
      ) : (
        <p className="jp-gpu-Warning">{silent}</p>
      )}
      {details.map(text => (text === '' ? null : <p key={text}>{text}</p>))}
      {snapshot.server?.can_notify &&
      !training.outside &&
      (training.notify || whole >= NOTICE_MS) ? (
        <p>
          <label>
            <input
              type="checkbox"
              checked={training.notify}
              onChange={event => void model.notify(training.run, event.target.checked)}
            />{' '}
            {trans.__('Tell me when it ends')}
          </label>
        </p>
      ) : null}
    </>
  );
}

/** The libraries with an example notebook, by the notebook's name on the server. */
const EXAMPLES: [name: string, library: string][] = [
  ['keras', 'Keras'],
  ['lightning', 'Lightning'],
  ['transformers', 'transformers'],
  ['fastai', 'fastai'],
  ['tqdm', 'tqdm']
];

/** What a server without a training shows: how to see one here. */
export function Examples({
  open,
  trans
}: {
  open: (name: string) => void;
  trans: IShown['trans'];
}): JSX.Element {
  const all = [['loop', trans.__('any loop')] as const, ...EXAMPLES];
  return (
    <details>
      <summary>{trans.__('Show the time left of your training')}</summary>
      <p>{trans.__('Open a copy of an example:')}</p>
      <p className="jp-gpu-Keep">
        {all.map(([name, label]) => (
          <button key={name} type="button" className="jp-gpu-Small" onClick={() => open(name)}>
            {label}
          </button>
        ))}
      </p>
    </details>
  );
}
