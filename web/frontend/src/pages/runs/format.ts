import type { Schemas } from "../../api/client";
import { shown } from "../../components/chartData";

export type RunRow = Schemas["RunRow"];
export type Status = RunRow["status"];

/** Whether the run may still change. */
export function goesOn(status: Status): boolean {
  return status === "running" || status === "ending";
}

export function figure(found: Schemas["KeyFigure"] | null | undefined): string {
  return found == null ? "" : `${found.label} ${shown(found.value, found.share)}`;
}

/** What people call the run: the name of what it makes, else its kind. */
export function title(run: RunRow): string {
  return run.name ?? run.kind;
}
