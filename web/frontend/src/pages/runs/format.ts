import type { Schemas } from "../../api/client";
import { shown } from "../../components/chartData";

export type RunRow = Schemas["RunRow"];
export type Status = RunRow["status"];

/** Whether the run may still change. */
export function goesOn(status: Status): boolean {
  return status === "running" || status === "ending";
}

/** Seconds as people say them. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null) return "-";
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function figure(found: Schemas["KeyFigure"] | null | undefined): string {
  return found == null ? "" : `${found.label} ${shown(found.value, found.share)}`;
}

/** What people call the run: the name of what it makes, else its kind. */
export function title(run: RunRow): string {
  return run.name ?? run.kind;
}
