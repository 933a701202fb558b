import { NONE } from "./none";

/** A time that something took, from seconds: tenths below ten, and never more than two units. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return NONE;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
