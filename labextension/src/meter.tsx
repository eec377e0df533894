/**
 * A bar from zero to the limit. If the value is not known there is no bar, because an empty bar would mean zero.
 */
import * as React from 'react';

export function Meter({
  label,
  text,
  percent,
  role = 'meter'
}: {
  label: string;
  text: string;
  percent: number | null;
  role?: 'meter' | 'progressbar';
}): JSX.Element | null {
  return percent === null ? null : (
    <div
      className="jp-gpu-Meter"
      role={role}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(percent)}
      aria-valuetext={text}
    >
      <div style={{ width: `${percent}%` }} />
    </div>
  );
}
